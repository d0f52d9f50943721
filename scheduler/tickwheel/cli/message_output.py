"""The output line for a message whose state a command changed."""

from tickwheel import Change
from tickwheel.cli.output import format_moment, print_json
from tickwheel.cli.target import Target
from tickwheel.runtime.text_escape import escape_unprintable


def print_state(target: Target, id: str, state: str) -> None:
    if target.json:
        print_json({"id": id, "state": state})
    else:
        print(f"{escape_unprintable(id)} {state}")


def print_change(target: Target, change: Change) -> None:
    if target.json:
        fields = {"id": change.id, "state": change.state, "version": change.version, "at": change.at}
        print_json(fields | {"changed": change.changed})
        return
    at = f", due {format_moment(change.at)}" if change.state == "invisible" else ""
    print(f"{escape_unprintable(change.id)} {change.state}{at}" + ("" if change.changed else ", unchanged"))
