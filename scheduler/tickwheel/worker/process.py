"""One worker process: imports the app, and runs its tasks in one or more lanes until it is told to stop.

It is started by the supervisor, which writes `Orders` as one line to its standard input. That ends when the supervisor
does.
"""

import importlib
import logging
import os
import random
import resource
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.runtime.log_fields import fields
from tickwheel.runtime.log_format import log_to_stderr
from tickwheel.runtime.signals import hear
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.queue_selectors import SELECTORS, QueueSelector
from tickwheel.tasks.runner import Runner, harmless
from tickwheel.tasks.task_queue import TaskQueue
from tickwheel.worker.async_runner import AsyncTasks
from tickwheel.worker.completer import Finisher
from tickwheel.worker.consumer import Lane
from tickwheel.worker.ipc import Notes, Ready, Recurred
from tickwheel.worker.schedule_runner import Recurrence
from tickwheel.worker.shared_state import PAGES, Board
from tickwheel.worker.time_limit import AlarmLimit, ThreadLimits

_log = logging.getLogger("tickwheel.worker")
# What it ends with: it is to be started again at once.
RECYCLE = 75
CANNOT_START = 78
# Of the app's client, what the supervisor's has in common with it.
_SHARED = ("url", "namespace", "data_dir", "durability")


class Orders(msgspec.Struct, kw_only=True):
    """What the supervisor tells a process. ``where`` are arguments of the app's client that the command line gave."""

    app: str
    board_fd: int
    notes_fd: int
    lanes: int
    selector: str
    queues: list[str] | None
    where: dict[str, Any]
    memory_limit: int | None
    drain_s: float
    json: bool
    verbose: bool


def main() -> int:
    """Its exit code: 0, RECYCLE, or CANNOT_START."""
    orders = msgspec.json.decode(_line(), type=Orders)
    # Not for what tasks start: that would hold our pipes open, or wait for the end of our input.
    for fd in (orders.board_fd, orders.notes_fd):
        os.set_inheritable(fd, False)
    supervisor = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    log_to_stderr(json=orders.json, verbose=orders.verbose)
    stopping = threading.Event()

    hear((signal.SIGTERM,), stopping.set)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_supervisor, args=(supervisor, stopping, orders.drain_s), daemon=True).start()
    try:
        app = load_app(orders.app)
        # The supervisor turns the wheel of an embedded server.
        app.move(**orders.where, drive=False)
        app.load()
        queues = chosen_queues(app, orders.queues)
        kind = load_selector(orders.selector)
        for task in app.tasks.values():
            task.signature.check()
        for queue in queues:
            app.declared(queue.name)
    except TickwheelError as error:
        print(f"error: {error}", file=sys.stderr)
        return CANNOT_START
    return _work(orders, app, queues, kind, stopping)


def _work(
    orders: Orders,
    app: TaskApp,
    queues: list[TaskQueue],
    kind: type[QueueSelector[TaskQueue]],
    stopping: threading.Event,
) -> int:
    notes = Notes(orders.notes_fd)
    board = Board(orders.lanes, orders.board_fd)
    where = {name: app.where.get(name) for name in _SHARED}
    where["data_dir"] = None if where["data_dir"] is None else str(where["data_dir"])
    notes.send(Ready(where, [queue.name for queue in queues], list(app.tasks)))
    worker = f"{socket.gethostname()[:40]}:{os.getpid()}"
    tasks, finisher, recycling = AsyncTasks(), Finisher(app.tickwheel), threading.Event()

    def look_at_memory() -> None:
        limit = orders.memory_limit
        if limit is not None and not stopping.is_set() and (used := _resident()) > limit:
            extra = fields("memory limit", memory=used, limit=limit)
            _log.info(
                "%d MiB of memory in use, allowed are %d: a new process follows", used >> 20, limit >> 20, extra=extra
            )
            recycling.set()
            stopping.set()

    # Signals, and so alarms, reach the main thread alone.
    limited = AlarmLimit() if orders.lanes == 1 else ThreadLimits()
    lanes = [
        Lane(
            app,
            kind(queues, random.Random()),
            Runner(app, tasks.run, limited),
            finisher,
            notes,
            board.of_lane(n),
            n * PAGES,
            stopping,
            f"{worker}:{n}",
            look_at_memory,
        )
        for n in range(orders.lanes)
    ]
    for middleware in app.middleware:
        middleware.startup(app)
    recurrence = Recurrence(app, worker, lambda schedule, fate: notes.send(Recurred(schedule, fate)))
    recurrence.start()
    try:
        _run(lanes)
    finally:
        recurrence.close()
        finisher.close()
        for middleware in reversed(app.middleware):
            with harmless("shutdown"):
                middleware.shutdown(app)
        app.close()
    return RECYCLE if recycling.is_set() else 0


def _run(lanes: list[Lane]) -> None:
    if len(lanes) == 1:
        lanes[0].run()
        return
    # One that fails has all the others stop.
    with ThreadPoolExecutor(len(lanes), thread_name_prefix="tickwheel-lane") as threads:
        running = [threads.submit(lane.run) for lane in lanes]
    for each in running:
        each.result()


def load_app(spec: str) -> TaskApp:
    """``module:app``, from the working directory too. Raises InvalidArgument."""
    app = _load(spec, "the app")
    if not isinstance(app, TaskApp):
        raise InvalidArgument(f"{spec} is a {type(app).__name__}, no TaskApp")
    return app


def load_selector(spec: str) -> type[QueueSelector[TaskQueue]]:
    """One of the known selectors by name, or ``module:Class``. Raises InvalidArgument."""
    if spec in SELECTORS:
        return SELECTORS[spec]  # type: ignore[return-value]  # all take any kind of queue
    if ":" not in spec:
        raise InvalidArgument(f"the selector is one of {', '.join(SELECTORS)}, or module:Class, not {spec!r}")
    kind = _load(spec, "the selector")
    if not (isinstance(kind, type) and issubclass(kind, QueueSelector)):
        raise InvalidArgument(f"{spec} is no class derived from QueueSelector")
    return kind


def chosen_queues(app: TaskApp, names: list[str] | None) -> list[TaskQueue]:
    """The queues of those names, or all of the app's. Raises InvalidArgument for one that it does not have."""
    if unknown := [name for name in names or () if name not in app.queues]:
        raise InvalidArgument(f"the app has no queue {unknown[0]!r}; it has {', '.join(app.queues) or 'none'}")
    if not app.queues:
        raise InvalidArgument("the app has no task and no queue: there is nothing to work on")
    return [queue for name, queue in app.queues.items() if names is None or name in names]


def _load(spec: str, what: str) -> Any:
    module, _, name = spec.partition(":")
    if not module or not name:
        raise InvalidArgument(f"{what} is named as module:name, not {spec!r}")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise InvalidArgument(
                f"{what}: there is no module {module!r} in {Path.cwd()} or the environment"
            ) from error
        raise
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidArgument(f"{what}: module {module!r} has no {name!r}")
        found = getattr(found, part)
    return found


def _line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        if not (more := os.read(0, 1)):
            raise SystemExit(CANNOT_START)
        line += more
    return line


def _end_with_supervisor(supervisor: int, stopping: threading.Event, drain_s: float) -> None:
    while os.read(supervisor, 1024):
        pass
    stopping.set()
    # Nobody renews our leases any more.
    time.sleep(drain_s)
    os._exit(1)


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    sys.exit(main())
