"""`tickwheel schedules`: when the recurring tasks of an app fire."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.output import moment, note, print_json, print_table
from tickwheel.cli.target import Place
from tickwheel.errors import InvalidArgument

if TYPE_CHECKING:
    from tickwheel.tasks import Schedule

commands = typer.Typer()


@command(
    commands,
    "schedules",
    "tickwheel schedules shop:app",
    "tickwheel schedules shop:app --times 5 --json",
    panel="Looking",
)
def schedules(
    place: Place,
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The TaskApp, from this directory or installed.")],
    times: Annotated[int, typer.Option(min=1, max=1_000, help="How many of the next times of each.")] = 1,
) -> None:
    """List the schedules of an app, and when each fires next.

    Computed from the app alone: no server is asked.
    """
    try:
        from tickwheel.worker.process import load_app
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"schedules need {error.name}: install tickwheel[worker]") from error
    loaded = load_app(app)
    found = [(schedule, _next(schedule, times)) for schedule in loaded.schedules.values()]
    if place.json:
        print_json([_document(*each) for each in found])
    elif found:
        rows = [
            (schedule.name, schedule.call.task.name, moment(at))
            for schedule, next_times in sorted(found, key=lambda each: each[1][0])
            for at in next_times
        ]
        print_table(("schedule", "task", "next"), rows)
    else:
        note(f"{app} has no schedules")


def _next(schedule: "Schedule", count: int) -> list[datetime]:
    found = [schedule.next()]
    while len(found) < count:
        found.append(schedule.next(found[-1]))
    return found


def _document(schedule: "Schedule", next_times: list[datetime]) -> dict[str, object]:
    return {
        "name": schedule.name,
        "task": schedule.call.task.name,
        "times": schedule.times.text,
        "overlap": schedule.overlap,
        "missed": schedule.missed,
        "next": next_times,
    }
