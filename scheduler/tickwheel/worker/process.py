"""The program of one worker process: imports the app, and runs its tasks in *consumers* (threads that take batches).

The supervisor starts the process and writes a `ProcessConfig` as one line of JSON to its standard input. The input
ends when the supervisor ends; then the process stops, too.
"""

import gc
import logging
import os
import random
import resource
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from tickwheel import limits
from tickwheel.client import Tickwheel
from tickwheel.client.exit_codes import ExitCode, exit_code_of
from tickwheel.client.settings import ClientOptions, WhereOptions
from tickwheel.errors import TickwheelError
from tickwheel.model.queue_config import parse
from tickwheel.model.queue_config_update import IMMUTABLE_SETTINGS
from tickwheel.runtime.log_fields import log_fields
from tickwheel.runtime.log_format import log_to_stderr, print_error
from tickwheel.runtime.signals import handle_in_thread
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.run_context import running_task
from tickwheel.tasks.runner import Runner, call_hook
from tickwheel.tasks.task_queue import ANY_BACKOFF, TaskQueue
from tickwheel.worker.app_loader import import_app, load_selector, select_queues
from tickwheel.worker.async_runner import AsyncTaskLoop
from tickwheel.worker.banner import independent_log, log_start
from tickwheel.worker.completer import Completer
from tickwheel.worker.consumer import Consumer
from tickwheel.worker.early_release import EarlyRelease
from tickwheel.worker.ipc import Ended, Failed, NamespaceLost, OccurrenceHandled, Ready, ReportWriter, StartFailed
from tickwheel.worker.missing_queues import create_later, create_queues
from tickwheel.worker.namespace_loss import NAMESPACE_ERRORS, report_namespace_loss
from tickwheel.worker.queue_maximum import QueueMaximum
from tickwheel.worker.schedule_runner import ScheduleRunner
from tickwheel.worker.selectors import QueueSelector
from tickwheel.worker.shared_state import BATCHES_PER_CONSUMER, SharedState
from tickwheel.worker.start_hooks import StartHookFailed, importing, start_hook
from tickwheel.worker.supervisor_watch import SupervisorWatch
from tickwheel.worker.task_log import TaskLog
from tickwheel.worker.time_limit import AlarmLimit, ThreadLimits, install

_log = logging.getLogger("tickwheel.worker")
# The options of the app's client that the supervisor's client uses, too.
_SHARED_OPTIONS = ("url", "namespace", "data_dir", "durability")


class ProcessConfig(msgspec.Struct, kw_only=True):
    """The configuration of a process.

    ``client_options`` are the client's arguments that the command line sets. ``timeout_s`` is the client's timeout that
    the command line sets, and ``default_timeout_s`` is used if the app does not set one either. Without ``log_tasks``,
    only failures of tasks are logged. ``processes`` is the number of processes of the worker. ``drives``: the worker
    drives if nobody else does. ``is_restart``: an earlier process of the worker has started and opened the namespace,
    so that this one does not create it.
    """

    app: str
    shared_state_fd: int
    report_fd: int
    consumers: int
    selector: str
    queues: list[str] | None
    client_options: dict[str, Any]
    timeout_s: float | None
    default_timeout_s: float | None
    memory_limit: int | None
    drain_s: float
    json: bool
    verbose: bool
    log_tasks: bool = True
    processes: int = 1
    drives: bool = False
    is_restart: bool = False


def main() -> int:
    """Run the process. Return its exit code: 0, or the reason why the process cannot start."""
    gc.freeze()
    config = msgspec.json.decode(_read_line(), type=ProcessConfig)
    # Programs that tasks start must not inherit these descriptors and standard input: a program could keep the pipe
    # open, or read the input that comes from the supervisor.
    for fd in (config.shared_state_fd, config.report_fd):
        os.set_inheritable(fd, False)
    supervisor = os.dup(0)
    with open(os.devnull, "rb") as devnull:
        os.dup2(devnull.fileno(), 0)
    handler = log_to_stderr(json=config.json, verbose=config.verbose, running_task=running_task)
    stopping = threading.Event()

    # SIGINT and SIGUSR1 have no effect. The handler is not SIG_IGN, because programs that tasks start would inherit
    # SIG_IGN.
    handle_in_thread({signal.SIGTERM: stopping.set, signal.SIGINT: lambda: None, signal.SIGUSR1: lambda: None})
    reports = ReportWriter(config.report_fd, stopping.set)
    try:
        shared_state = SharedState(config.consumers, config.shared_state_fd)
        SupervisorWatch(supervisor, shared_state, stopping, config.drain_s).start()
        return _load_and_work(config, shared_state, reports, stopping, handler)
    except BaseException:
        reports.send(Failed())
        raise


def _load_and_work(
    config: ProcessConfig,
    shared_state: SharedState,
    reports: ReportWriter,
    stopping: threading.Event,
    handler: logging.Handler,
) -> int:
    module = config.app.partition(":")[0]
    try:
        with importing(module):
            app = import_app(config.app)
        # If the server is embedded, the supervisor drives its wheel.
        app.move(**cast(WhereOptions, {**config.client_options, **timeout_option(config, app.where), "drive": False}))
        app._is_stopping = stopping.is_set
        app._clients.current.must_exist = config.is_restart
        # The supervisor warns if nobody drives.
        app._clients.current.warns_undriven = False
        with importing(f"the tasks of {module}"):
            app.load()
        for check in app._start_checks:
            check(config.is_restart)
        queues = select_queues(app, config.queues)
        with importing(f"the selector {config.selector}"):
            selector_class = load_selector(config.selector)
        for task in app.tasks.values():
            task.signature.check()
        missing = create_queues(app, [queue.name for queue in queues], is_restart=config.is_restart)
    except TickwheelError as error:
        if config.is_restart and isinstance(error, NAMESPACE_ERRORS):
            reports.send(NamespaceLost(str(error)), Ended())
            return ExitCode.REFUSED
        print_error(error, json=config.json)
        reports.send(StartFailed(exit_code_of(error)))
        return exit_code_of(error)
    except StartHookFailed as error:
        return _report_failed_start(error, reports, handler)
    async_tasks = AsyncTaskLoop()
    with app._clients.keep_open(lambda: async_tasks.loop) as clients:
        report = _to_ready_report(app, queues)
        if not config.is_restart and not stopping.is_set():
            log_start(handler, config, report, app)
        try:
            tickwheel = clients.client()
            create_later(clients, missing, stopping)
            _work(config, app, tickwheel, async_tasks, queues, selector_class, shared_state, reports, report, stopping)
        except StartHookFailed as error:
            return _report_failed_start(error, reports, handler)
    reports.send(Ended())
    return 0


def _report_failed_start(error: StartHookFailed, reports: ReportWriter, handler: logging.Handler) -> int:
    error.write_to(independent_log(handler))
    reports.send(StartFailed(error.exit_code))
    return error.exit_code


def _to_ready_report(app: TaskApp, queues: list[TaskQueue]) -> Ready:
    client_options = {name: app.where.get(name) for name in _SHARED_OPTIONS}
    client_options["data_dir"] = None if client_options["data_dir"] is None else str(client_options["data_dir"])
    names, weights = [queue.name for queue in queues], [queue.weight for queue in queues]
    immutable = {name: _declared_immutable(app._config(name)) for name in names}
    return Ready(client_options, names, list(app.tasks), weights, immutable)


def _declared_immutable(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared settings of a queue that never change, as the queue stores them."""
    config = parse(declared, ANY_BACKOFF)
    return {name: getattr(config, name) for name in IMMUTABLE_SETTINGS if declared.get(name) is not None}


def _work(
    config: ProcessConfig,
    app: TaskApp,
    tickwheel: Tickwheel,
    async_tasks: AsyncTaskLoop,
    queues: list[TaskQueue],
    selector_class: type[QueueSelector[TaskQueue]],
    shared_state: SharedState,
    reports: ReportWriter,
    ready: Ready,
    stopping: threading.Event,
) -> None:
    worker = f"{socket.gethostname()[:40]}:{os.getpid()}"
    is_replaced = threading.Event()
    completer = Completer(tickwheel, TaskLog(app, is_on=config.log_tasks))
    # Before any code of the app runs, because the code can move the app.
    schedule_runner = ScheduleRunner(
        app,
        worker,
        lambda schedule, outcome: reports.send(OccurrenceHandled(schedule, outcome)),
        lambda error: report_namespace_loss(reports, stopping, error),
        # A process that another one replaces fires until its tasks have ended.
        lambda: stopping.is_set() and not is_replaced.is_set(),
    )
    # An alarm is a signal, and only the main thread receives signals. A single consumer runs in the main thread. If
    # there are more, all run in other threads.
    time_limit = AlarmLimit() if config.consumers == 1 else ThreadLimits()
    install(time_limit)
    with start_hook(f"the selector {config.selector}"):
        selectors = [selector_class(queues, random.Random()) for _ in range(config.consumers)]
    queue_maximum = QueueMaximum(tickwheel)
    early_release = EarlyRelease(completer.put)
    consumers = [
        Consumer(
            app,
            tickwheel,
            selectors[n],
            Runner(app, async_tasks.run, time_limit, logs_failures=False, queue_maximum=queue_maximum),
            completer,
            early_release.add_consumer(),
            reports,
            shared_state.of_consumer(n),
            n * BATCHES_PER_CONSUMER,
            stopping,
            f"{worker}:{n}",
            partial(_check_memory, config.memory_limit, stopping, is_replaced),
            partial(shared_state.mark_round, n),
        )
        for n in range(config.consumers)
    ]
    for middleware in app.middleware:
        with start_hook(f"the hook startup of {type(middleware).__module__}.{type(middleware).__qualname__}"):
            middleware.startup(app)
    # Only now has the process started: if the hooks of the first process fail, those of the next one would, too.
    reports.send(ready)
    schedule_runner.start()
    early_release.start()
    try:
        _run(consumers)
    finally:
        schedule_runner.close()
        early_release.close()
        completer.close()
        call_hook(app, "shutdown", app)


def _run(consumers: list[Consumer]) -> None:
    if len(consumers) == 1:
        consumers[0].run()
        return
    # A consumer that fails stops all others.
    with ThreadPoolExecutor(len(consumers), thread_name_prefix="tickwheel-consumer") as threads:
        futures = [threads.submit(consumer.run) for consumer in consumers]
    for future in futures:
        future.result()


def timeout_option(config: ProcessConfig, app_options: Mapping[str, Any]) -> ClientOptions:
    """Return the client's timeout that replaces the one of the app, as an argument of the client.

    The default is longer than that of an app outside workers, because a task should survive the failover of a server.
    """
    timeout_s = config.timeout_s
    if timeout_s is None:
        if app_options.get("timeout") is not None:
            return {}
        timeout_s = limits.RETRY_MS / 1000 if config.default_timeout_s is None else config.default_timeout_s
    return {"timeout": timedelta(seconds=timeout_s)}


def _read_line() -> bytes:
    # Without a buffer, because a buffered reader would read more than the line.
    with open(0, "rb", buffering=0, closefd=False) as standard_input:
        line = standard_input.readline()
    if not line.endswith(b"\n"):
        raise SystemExit(ExitCode.REFUSED)
    return line


def _check_memory(limit: int | None, stopping: threading.Event, is_replaced: threading.Event) -> None:
    """Stop the process, so that another one replaces it, if it uses more than ``limit`` bytes of memory."""
    if limit is not None and not stopping.is_set() and (used := _resident_bytes()) > limit:
        _log.info(
            "%d MiB of memory in use, and the limit is %d MiB: a new process takes over",
            used >> 20,
            limit >> 20,
            extra=log_fields("memory limit", memory=used, limit=limit),
        )
        is_replaced.set()
        stopping.set()


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    sys.exit(main())
