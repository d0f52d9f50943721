"""Values that the shell completes: states, the names of the queues on a server, and the names of tasks.

An error must not disturb the command line that the user is typing, so completion then offers nothing.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import timedelta
from io import StringIO

import typer

from tickwheel import Tickwheel
from tickwheel.cli.target import Target
from tickwheel.errors import TickwheelError
from tickwheel.operations.removal.purge import PURGE_STATES
from tickwheel.storage.record import State

# A person waits for the completion of a word.
_TIMEOUT = timedelta(seconds=1)
_NAMES = ("url", "namespace")


def complete_state(incomplete: str) -> list[str]:
    """Return the states of messages that begin with the text."""
    return [state.label for state in State if state.label.startswith(incomplete)]


def complete_purged_state(incomplete: str) -> list[str]:
    """Return the states of messages that a purge can remove, and that begin with the text."""
    return [state for state in PURGE_STATES if state.startswith(incomplete)]


def complete_queue(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of queues that begin with the text, if the command line or the environment has a URL."""
    return _matching(_read(context, lambda tickwheel: [queue.name for queue in tickwheel.queues()]), incomplete)


def complete_task(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of tasks that begin with the text: of those that have a route, and of the app of ``--app``.

    The routes are read if the command line or the environment has a URL. The module of the app is imported, as by the
    command itself.
    """
    try:
        from tickwheel.tasks.celery_routes import list_routed_tasks
    except ModuleNotFoundError:
        # The command reports which extra it needs.
        return []
    app: str | None = context.params.get("app")
    return _matching({*_read(context, list_routed_tasks), *(() if app is None else _tasks_of(app))}, incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _read(context: typer.Context, read: Callable[[Tickwheel], list[str]]) -> list[str]:
    """Read names from the server of the command line or of the environment.

    Without a URL, the answer is empty: an embedded server would have to be started for it.
    """
    target = Target.from_environment()
    for level in (context.find_root(), context):
        options = {name: level.params.get(name) for name in _NAMES}
        target = Target(options["url"], None, options["namespace"]).merged_with(target)
    if target.url is None:
        return []
    logging.getLogger("tickwheel").addHandler(logging.NullHandler())
    try:
        with replace(target, timeout=_TIMEOUT).open() as tickwheel:
            return read(tickwheel)
    except (TickwheelError, OSError):
        return []


def _tasks_of(app: str) -> list[str]:
    """Return the names of the tasks of an app, and of the Celery tasks that migrate to it."""
    from tickwheel.worker.app_loader import load_app

    # What the module prints would be part of the answer.
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        try:
            loaded = load_app(app)
        except Exception:
            # The command reports the error of the module.
            return []
    return list(loaded.tasks)
