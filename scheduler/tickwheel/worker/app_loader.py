"""Imports and checks the app, the selector and the queues that the command line names."""

import importlib
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tickwheel.errors import InvalidArgument
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.task_queue import TaskQueue
from tickwheel.worker.selectors import SELECTORS, QueueSelector
from tickwheel.worker.start_hooks import StartHookFailed, importing


def load_app(spec: str, prepare: Callable[[TaskApp], None] = lambda app: None) -> TaskApp:
    """Import the app ``module:app``, load it as a worker does (`TaskApp.load`), and return it. For commands.

    ``prepare`` changes the app before it is loaded. Raises InvalidArgument, also for any error of the app's own code,
    and if this code ends the program.
    """
    module = spec.partition(":")[0]
    try:
        with importing(module):
            app = import_app(spec)
        prepare(app)
        with importing(f"the tasks of {module}"):
            app.load()
    except StartHookFailed as failed:
        cause = failed.__cause__ or failed
        raise InvalidArgument(f"{failed}{_describe_place(cause, module)}") from cause
    return app


def import_app(spec: str) -> TaskApp:
    """Import and return the app ``module:app``. The module may be in the working directory.

    Raises InvalidArgument, and every error of the app's own code as it is.
    """
    app = _load(spec, "the app")
    if not isinstance(app, TaskApp):
        raise InvalidArgument(f"{spec} is not a TaskApp: its type is {type(app).__name__}")
    return app


def load_selector(spec: str) -> type[QueueSelector[TaskQueue]]:
    """Return the class of a selector: one of `SELECTORS` by its name, or ``module:Class``. Raises InvalidArgument."""
    if spec in SELECTORS:
        return SELECTORS[spec]  # type: ignore[return-value]  # all take any kind of queue
    if ":" not in spec:
        raise InvalidArgument(f"the selector must be one of {', '.join(SELECTORS)}, or module:Class, not {spec!r}")
    selector_class = _load(spec, "the selector")
    if not (isinstance(selector_class, type) and issubclass(selector_class, QueueSelector)):
        raise InvalidArgument(f"{spec} is not a class derived from QueueSelector")
    return selector_class


def select_queues(app: TaskApp, names: list[str] | None) -> list[TaskQueue]:
    """Return the named queues of the app, by default all.

    An app that runs tasks of Celery has every named queue, because a call can name any. Otherwise raises
    InvalidArgument for unknown names.
    """
    unknown = [name for name in names or () if name not in app.queues]
    if app._declare_queue is not None:
        for name in unknown:
            app._declare_queue(name)
    elif unknown:
        raise InvalidArgument(f"the app has no queue {unknown[0]!r}; it has {', '.join(app.queues) or 'none'}")
    if not app.queues:
        raise InvalidArgument("the app has no task and no queue: declare a task for the worker to run")
    return [queue for name, queue in app.queues.items() if names is None or name in names]


def declared_configs(app: TaskApp) -> dict[str, Mapping[str, Any]]:
    """Return the settings that the app declares for each of its queues, with the queue of its schedules if any."""
    schedule_queue = [app.schedule_queue] if app.schedules else []
    return {name: app._config(name) for name in [*app.queues, *schedule_queue]}


def _load(spec: str, label: str) -> Any:
    module, _, name = spec.partition(":")
    if not module or not name:
        raise InvalidArgument(f"{label} must be named as module:name, not {spec!r}")
    # A worker process starts without its working directory in the path (`runtime/python_command.py`). The directory
    # comes first, as with `python -m`, also if the environment lists it further back.
    if sys.path[0] not in ("", str(Path.cwd())):
        sys.path.insert(0, str(Path.cwd()))
    try:
        value: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise InvalidArgument(
                f"{label}: there is no module {module!r} in {Path.cwd()} or the environment"
            ) from error
        raise
    for part in name.split("."):
        if not hasattr(value, part):
            raise InvalidArgument(f"{label}: module {module!r} has no {name!r}")
        value = getattr(value, part)
    return value


def _describe_place(error: BaseException, module: str) -> str:
    """Return in which line of the app the error was raised, as a suffix; empty if no code of the app was running."""
    package, place = module.partition(".")[0], ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        caller = str(frame.f_globals.get("__name__")).partition(".")[0]
        is_local = path.is_relative_to(Path.cwd()) and "site-packages" not in path.parts and caller != "tickwheel"
        if caller == package or is_local:
            place = f" ({path}:{line})"
    return place
