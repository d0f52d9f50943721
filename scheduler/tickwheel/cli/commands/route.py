"""`tickwheel route list|set|unset`: routes of Celery tasks during a migration."""

from contextlib import suppress
from typing import Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.command_help import CommandGroup
from tickwheel.cli.completion import complete_task
from tickwheel.cli.driver_warning import warn_if_undriven
from tickwheel.cli.output import print_json, print_status
from tickwheel.cli.tables import print_table
from tickwheel.cli.target import Target
from tickwheel.errors import DataLoss, InvalidArgument
from tickwheel.model.validation import preview, suggest

commands = CommandGroup(no_args_is_help=True, help="Choose where calls of Celery's tasks go during a migration.")

Task = Annotated[
    str,
    typer.Argument(help="The task's name in Celery.", metavar="TASK", show_default=False, autocompletion=complete_task),
]


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
    "tickwheel route set mail.send --to celery --app shop:tickwheel",
)
def set_(
    target: Target,
    task: Task,
    to: Annotated[str, typer.Option(help="celery or tickwheel.", show_default=False)],
    share: Annotated[
        float, typer.Option(help="Share of the calls that go there, 0 to 1; the rest go to the other system.")
    ] = 1.0,
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            metavar="MODULE:APP",
            help="The TaskApp of the migration: refuse the route if neither it nor Celery has the task.",
        ),
    ] = None,
) -> None:
    """Set where the calls of a task go. Producers apply the change within about a second.

    Without --app, the command cannot know the names of Celery's tasks, and warns if no task of this name had a route.
    """
    from tickwheel.tasks.celery_routes import Route, list_routed_tasks, write

    route = Route(to, share)
    stays = None if app is None else _check_task(app, task)
    with target.open() as tickwheel:
        known = [task]
        if app is None:
            # A damaged setting of another name must not keep the user from setting this route.
            with suppress(DataLoss):
                known = list_routed_tasks(tickwheel)
        write(tickwheel, task, route)
        if route.to == "tickwheel":
            warn_if_undriven(tickwheel)
    if task not in known:
        print_status(
            f"Warning: {preview(task)} is a new route, whose name was not checked{suggest(task, known)}. To check that"
            " the task exists, name the TaskApp of the migration: --app MODULE:APP"
        )
    if stays is not None and route.to == "tickwheel":
        print_status(f"Warning: the calls of {preview(task)} stay with Celery whatever the route is: {stays}")
    if target.json:
        print_json({task: {"to": to, "share": share}})


def _check_task(app: str, task: str) -> str | None:
    """Return why the calls of the task stay with Celery, or None.

    Raises InvalidArgument if the app and Celery, whose tasks migrate to it, have no task of this name.
    """
    from tickwheel.worker.app_loader import load_app

    loaded = load_app(app)
    stays = loaded._why_task_stays(task)
    # The app does not declare each task that stays.
    if stays is None and task not in loaded.tasks:
        raise InvalidArgument(f"{app} has no task {preview(task)}{suggest(task, loaded.tasks)}")
    return stays


@commands.command()
@command("unset", "tickwheel route unset mail.send")
def unset(target: Target, task: Task) -> None:
    """Remove a task's route. From then on, all calls of the task go to Celery."""
    from tickwheel.tasks.celery_routes import write

    with target.open() as tickwheel:
        write(tickwheel, task, None)
    if target.json:
        print_json({task: None})
