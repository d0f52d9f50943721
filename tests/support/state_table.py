"""Generates the table of states in `docs/guarantees.md` from the code.

python -m tests.support.state_table     writes the table into the page
"""

from pathlib import Path
from typing import Final

from tickwheel.model.state_machine import TRANSITIONS
from tickwheel.storage.record import State

PAGE: Final = Path(__file__).parents[2] / "docs" / "guarantees.md"
BEGIN: Final = "<!-- python -m tests.support.state_table writes this table -->\n"
END: Final = "<!-- end of the table -->\n"


def all_transitions() -> set[tuple[str | None, str, str | None]]:
    """Return (state before, script, state after). A state is a label, or None if the message does not exist."""
    return {
        (before.label if before else None, row.script, after.label if after else None)
        for row in TRANSITIONS
        for before in row.before
        for after in row.after
    }


def state_table() -> str:
    """Return the table in Markdown, one row for each transition."""
    rows = ["| from | by | to |", "|---|---|---|"]
    for row in TRANSITIONS:
        before = ", ".join(_name(state, "–") for state in row.before)
        after = " or ".join(_name(state, "removed") for state in row.after)
        rows.append(f"| {before} | {row.condition} | {after}{f' ({row.note})' if row.note else ''} |")
    return "\n".join(rows) + "\n"


def table_of_page() -> str:
    """Return the table that the page contains."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{state_table()}{END}{rest.partition(END)[2]}")


def _name(state: State | None, absent: str) -> str:
    return absent if state is None else state.name.capitalize()


if __name__ == "__main__":
    main()
