"""`tickwheel schedules`: next times of an app's recurring tasks."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.message_tables import format_time
from tickwheel.cli.output import print_json, print_status
from tickwheel.cli.tables import print_table
from tickwheel.cli.target import Target
from tickwheel.errors import InvalidArgument
from tickwheel.runtime.extras import describe_install

if TYPE_CHECKING:
    from tickwheel.tasks import Schedule


@command("schedules", "tickwheel schedules shop:app", "tickwheel schedules shop:app --times 5 --json")
def schedules(
    target: Target,
    app: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="The TaskApp, in a module of this directory or installed.")
    ],
    times: Annotated[
        int, typer.Option(min=1, max=1_000, help="How many of the next times of each schedule to list.")
    ] = 1,
) -> None:
    """List the schedules of an app, and when each fires next.

    The command computes the times from the app alone, without a server.
    """
    try:
        from tickwheel.worker.app_loader import load_app
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"schedules need {error.name}: {describe_install('worker')}") from error
    loaded = load_app(app)
    entries = [(schedule, _next_times(schedule, times)) for schedule in loaded.schedules.values()]
    if target.json:
        print_json([_document(*entry) for entry in entries])
    elif entries:
        rows = [
            (schedule.name, schedule.call.task.name, format_time(at), schedule.times.label)
            for schedule, next_times in sorted(entries, key=lambda entry: entry[1][0])
            for at in next_times
        ]
        print_table(("schedule", "task", "next", "times"), rows)
    else:
        print_status(f"{app} has no schedules")


def _next_times(schedule: "Schedule", count: int) -> list[datetime]:
    times = [schedule.next()]
    while len(times) < count:
        times.append(schedule.next(times[-1]))
    return times


def _document(schedule: "Schedule", next_times: list[datetime]) -> dict[str, object]:
    return {
        "name": schedule.name,
        "task": schedule.call.task.name,
        "times": schedule.times.text,
        "overlap": schedule.overlap,
        "missed": schedule.missed,
        "next": next_times,
    }
