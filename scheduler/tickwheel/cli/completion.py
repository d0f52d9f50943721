"""Values that the shell completes: states, the names of the queues on a server, and the names of tasks.

An error must not disturb the command line that the user is typing, so completion then offers nothing.
"""

import logging
import re
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import timedelta
from io import StringIO

import typer

from tickwheel import Tickwheel
from tickwheel.cli.target import AppTarget, Target, load_app_target
from tickwheel.errors import TickwheelError
from tickwheel.operations.removal.purge import PURGE_STATES
from tickwheel.storage.record import State

# A person waits for the completion of a word.
_TIMEOUT = timedelta(seconds=1)
_NAMES = ("url", "namespace")
_SAFE_NAME = re.compile(r"[\w.:@/+-]+")


def complete_state(incomplete: str) -> list[str]:
    """Return the states of messages that begin with the text."""
    return [state.label for state in State if state.label.startswith(incomplete)]


def complete_purged_state(incomplete: str) -> list[str]:
    """Return the states of messages that a purge can remove, and that begin with the text."""
    return [state for state in PURGE_STATES if state.startswith(incomplete)]


def complete_queue(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of queues that begin with the text, if the command line or the environment has a URL."""
    names = _read(_target(context), lambda tickwheel: [queue.name for queue in tickwheel.queues()])
    return _matching(names, incomplete)


def complete_task(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of tasks that begin with the text: of those that have a route, and of the app of ``--app``.

    The routes are those that the command itself uses: of the server and the namespace of the app, which is imported, or
    else of the command line or the environment. They are read if there is a URL.
    """
    try:
        from tickwheel.tasks.celery_routes import list_routed_tasks
    except ModuleNotFoundError:
        # The command reports which extra it needs.
        return []
    target, spec = _target(context), context.params.get("app")
    of_app = None if spec is None else _load(target, spec)
    tasks = [] if of_app is None else list(of_app.app.tasks)
    routed = _read(target if of_app is None else of_app, lambda tickwheel: [*list_routed_tasks(tickwheel)])
    return _matching({*routed, *tasks}, incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that begin with the text.

    Shells evaluate the answer, and other programs may have written any names. So names with other characters than
    letters, digits and a few signs without a meaning for shells are left out.
    """
    return sorted(name for name in names if name.startswith(incomplete) and _SAFE_NAME.fullmatch(name))


def _target(context: typer.Context) -> Target:
    """Return the target of the command line or of the environment."""
    target = Target.from_environment()
    for level in (context.find_root(), context):
        options = {name: level.params.get(name) for name in _NAMES}
        target = Target(options["url"], None, options["namespace"]).merged_with(target)
    return replace(target, timeout=_TIMEOUT)


def _read(place: Target | AppTarget, read: Callable[[Tickwheel], list[str]]) -> list[str]:
    """Read names from a server.

    Without a URL, the answer is empty: an embedded server would have to be started for it.
    """
    if (place if isinstance(place, Target) else place.target).url is None:
        return []
    logging.getLogger("tickwheel").addHandler(logging.NullHandler())
    try:
        with place.open() as tickwheel:
            return read(tickwheel)
    except (TickwheelError, OSError):
        return []


def _load(target: Target, spec: str) -> AppTarget | None:
    """Load an app with its tasks and the Celery tasks that migrate to it. Return None if this is not possible."""
    # What the module prints would be part of the answer.
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        try:
            return load_app_target(target, spec)
        except Exception:
            # The command reports the error of the module.
            return None
