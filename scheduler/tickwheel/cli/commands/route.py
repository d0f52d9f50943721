"""`tickwheel route list|set|unset`: routes of Celery tasks during a migration."""

from contextlib import suppress
from typing import Annotated

import typer

from tickwheel import Tickwheel
from tickwheel.cli.command import command
from tickwheel.cli.command_help import CommandGroup
from tickwheel.cli.completion import complete_task
from tickwheel.cli.driver_warning import warn_if_undriven
from tickwheel.cli.output import print_json, print_status
from tickwheel.cli.tables import print_table
from tickwheel.cli.target import AppTarget, Target, load_app_target
from tickwheel.client.admin import Admin
from tickwheel.errors import DataLoss, InvalidArgument
from tickwheel.model.validation import preview, suggest

commands = CommandGroup(no_args_is_help=True, help="Choose where calls of Celery's tasks go during a migration.")

Task = Annotated[
    str,
    typer.Argument(help="The task's name in Celery.", metavar="TASK", show_default=False, autocompletion=complete_task),
]
OfApp = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:APP", help="The TaskApp of the migration, whose namespace has the routes."),
]


@commands.command()
@command("list", "tickwheel route list --app shop:tickwheel")
def list_(target: Target, app: OfApp = None) -> None:
    """List the tasks that have a route. Calls of all other tasks go to Celery."""
    from tickwheel.tasks.celery_routes import list_routes

    with _place(target, app).open() as tickwheel:
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
            help="The TaskApp of the migration: set the route in its namespace, and refuse the route if neither the"
            " TaskApp nor Celery has the task.",
        ),
    ] = None,
) -> None:
    """Set where the calls of a task go. Producers apply the change within about a second.

    With --app, the route is set on the server and in the namespace of the app, unless an option names another one.
    Without --app, the command cannot know the names of Celery's tasks, and warns if no task of this name had a route.
    """
    from tickwheel.tasks.celery_routes import Route, list_routed_tasks, write

    route = Route(to, share)
    of_app = None if app is None else load_app_target(target, app)
    stays = None if of_app is None else _check_task(of_app, str(app), task)
    with (of_app or target).open() as tickwheel:
        routes: dict[str, Route | None] = {task: None}
        # A damaged setting of another name must not keep the user from setting this route.
        with suppress(DataLoss):
            routes = list_routed_tasks(tickwheel)
        known = [*routes] if app is None else [task]
        moved = {name for name, other in routes.items() if other is not None and other._moved_share > 0}
        # The first route to Tickwheel has the warning. The others of a script would only repeat it.
        is_first = route.to == "tickwheel" and not moved - {task}
        write(tickwheel, task, route)
        has_no_effect = stays is not None and (route.to == "tickwheel" or route.share < 1)
        effect = "the route is stored, and has no effect for this task" if has_no_effect else _describe(to, share)
        _print_change(tickwheel, task, effect)
        if is_first:
            warn_if_undriven(tickwheel)
    if task not in known:
        print_status(
            f"Warning: {preview(task)} is a new route, whose name was not checked{suggest(task, known)}. To check that"
            " the task exists, name the TaskApp of the migration: --app MODULE:APP"
        )
    if has_no_effect:
        print_status(f"Warning: the calls of {preview(task)} stay with Celery whatever the route is: {stays}")
    if target.json:
        print_json({task: {"to": to, "share": share}})


def _place(target: Target, app: str | None) -> Target | AppTarget:
    return target if app is None else load_app_target(target, app)


def _describe(to: str, share: float) -> str:
    if share == 1:
        return f"all calls go to {to}"
    other = "celery" if to == "tickwheel" else "tickwheel"
    return f"a share of {share:g} of the calls goes to {to}, the rest to {other}"


def _print_change(tickwheel: Tickwheel, task: str, effect: str) -> None:
    """Print what now holds for a task, and where it was written: producers of another namespace do not read it."""
    settings = Admin(tickwheel).settings
    print_status(f"{preview(task)}: {effect} (written to {settings.display_url}, namespace {settings.namespace})")


def _check_task(of_app: AppTarget, app: str, task: str) -> str | None:
    """Return why the calls of the task stay with Celery, or None.

    Raises InvalidArgument if the app and Celery, whose tasks migrate to it, have no task of this name.
    """
    loaded = of_app.app
    stays = loaded._why_task_stays(task)
    # The app does not declare each task that stays.
    if stays is None and task not in loaded.tasks:
        raise InvalidArgument(f"{app} has no task {preview(task)}{suggest(task, loaded.tasks)}")
    return stays


@commands.command()
@command("unset", "tickwheel route unset mail.send --app shop:tickwheel")
def unset(target: Target, task: Task, app: OfApp = None) -> None:
    """Remove a task's route. From then on, all calls of the task go to Celery."""
    from tickwheel.tasks.celery_routes import write

    with _place(target, app).open() as tickwheel:
        write(tickwheel, task, None)
        _print_change(tickwheel, task, "no route, so all calls go to celery")
    if target.json:
        print_json({task: None})
