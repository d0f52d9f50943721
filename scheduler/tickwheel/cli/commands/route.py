"""`tickwheel route list|set|unset`."""

from typing import Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.output import note, print_json, print_table
from tickwheel.cli.target import Place

commands = typer.Typer(no_args_is_help=True, help="Say where calls of Celery's tasks go while an application moves.")

Task = Annotated[str, typer.Argument(help="The task's name, as Celery has it.", metavar="TASK", show_default=False)]


@command(commands, "list", "tickwheel route list")
def list_(place: Place) -> None:
    """List the tasks that have a route; all others are Celery's."""
    from tickwheel.tasks import celery_routes as routes

    with place.open() as tickwheel:
        found = routes.listed(tickwheel)
    if place.json:
        print_json({task: {"to": route.to, "share": route.share} for task, route in found.items()})
    elif not found:
        note("no routes: all calls go to Celery")
    else:
        print_table(("task", "to", "share"), [(task, route.to, f"{route.share:g}") for task, route in found.items()])


@command(
    commands,
    "set",
    "tickwheel route set mail.send --to tickwheel --share 0.1",
    "tickwheel route set mail.send --to celery",
)
def set_(
    place: Place,
    task: Task,
    to: Annotated[str, typer.Option(help="celery or tickwheel.", show_default=False)],
    share: Annotated[
        float, typer.Option(help="The part of the calls that goes there, 0 to 1; the others go to the other.")
    ] = 1.0,
) -> None:
    """Set where the calls of a task go. Producers follow within about a second."""
    from tickwheel.tasks import celery_routes as routes

    route = routes.Route(to, share)
    with place.open() as tickwheel:
        routes.write(tickwheel, task, route)
    if place.json:
        print_json({task: {"to": to, "share": share}})


@command(commands, "unset", "tickwheel route unset mail.send")
def unset(place: Place, task: Task) -> None:
    """Remove a task's route: all its calls go to Celery."""
    from tickwheel.tasks import celery_routes as routes

    with place.open() as tickwheel:
        routes.write(tickwheel, task, None)
    if place.json:
        print_json({task: None})
