"""`tickwheel route list|set|unset`: routes of Celery tasks during a migration."""

from typing import Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.output import print_json, print_status, print_table
from tickwheel.cli.target import Target

commands = typer.Typer(no_args_is_help=True, help="Choose where calls of Celery's tasks go during a migration.")

Task = Annotated[str, typer.Argument(help="The task's name in Celery.", metavar="TASK", show_default=False)]


@commands.command()
@command("list", "tickwheel route list")
def list_(target: Target) -> None:
    """List the tasks that have a route. Calls of all other tasks go to Celery."""
    from tickwheel.tasks.celery_routes import list_routes

    with target.open() as tickwheel:
        task_routes = list_routes(tickwheel)
    if target.json:
        print_json({task: {"to": route.to, "share": route.share} for task, route in task_routes.items()})
    elif not task_routes:
        print_status("no routes: all calls go to Celery")
    else:
        print_table(
            ("task", "to", "share"), [(task, route.to, f"{route.share:g}") for task, route in task_routes.items()]
        )


@commands.command()
@command(
    "set",
    "tickwheel route set mail.send --to tickwheel --share 0.1",
    "tickwheel route set mail.send --to celery",
)
def set_(
    target: Target,
    task: Task,
    to: Annotated[str, typer.Option(help="celery or tickwheel.", show_default=False)],
    share: Annotated[
        float, typer.Option(help="Share of the calls that go there, 0 to 1; the rest go to the other system.")
    ] = 1.0,
) -> None:
    """Set where the calls of a task go. Producers apply the change within about a second."""
    from tickwheel.tasks.celery_routes import Route, write

    route = Route(to, share)
    with target.open() as tickwheel:
        write(tickwheel, task, route)
    if target.json:
        print_json({task: {"to": to, "share": share}})


@commands.command()
@command("unset", "tickwheel route unset mail.send")
def unset(target: Target, task: Task) -> None:
    """Remove a task's route. From then on, all calls of the task go to Celery."""
    from tickwheel.tasks.celery_routes import write

    with target.open() as tickwheel:
        write(tickwheel, task, None)
    if target.json:
        print_json({task: None})
