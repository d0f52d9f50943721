"""A consumer of a worker process, for tests that run it in a thread of their own."""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tickwheel import Tickwheel
from tickwheel.tasks import TaskApp
from tickwheel.tasks.runner import Runner
from tickwheel.tasks.task_queue import TaskQueue
from tickwheel.worker.async_runner import AsyncTaskLoop
from tickwheel.worker.completer import Completer
from tickwheel.worker.consumer import Consumer
from tickwheel.worker.early_release import EarlyRelease
from tickwheel.worker.ipc import ReportWriter
from tickwheel.worker.queue_maximum import QueueMaximum
from tickwheel.worker.selectors import Lottery, QueueSelector
from tickwheel.worker.shared_state import SharedState
from tickwheel.worker.task_log import TaskLog


@contextmanager
def make_consumer(
    app: TaskApp,
    tickwheel: Tickwheel,
    report_fd: int,
    stopping: threading.Event,
    selector: type[QueueSelector[TaskQueue]] = Lottery,
    *,
    logs_tasks: bool = True,
    takes_batches: bool = False,
) -> Iterator[Consumer]:
    """Make a consumer of all queues of the app, which writes its reports to ``report_fd``.

    With ``takes_batches``, the first dequeue takes a batch, as after short tasks, and not one message.
    """
    state = SharedState(1)
    with (
        closing(Completer(tickwheel, TaskLog(app, is_on=logs_tasks))) as completer,
        closing(EarlyRelease(completer.put)) as early_release,
    ):
        waiting = early_release.add_consumer()
        early_release.start()
        consumer = Consumer(
            app,
            tickwheel,
            selector(app.queues.values(), random.Random(1)),
            Runner(app, AsyncTaskLoop().run, logs_failures=False, queue_maximum=QueueMaximum(tickwheel)),
            completer,
            waiting,
            ReportWriter(report_fd, stopping.set),
            state.of_consumer(0),
            0,
            stopping,
            "worker",
            lambda: None,
        )
        if takes_batches:
            for queue in app.queues.values():
                consumer._options[queue.name] = consumer._options[queue.name]._replace(limit=queue.batch)
        yield consumer
    state.close()


@contextmanager
def run_consumer(
    app: TaskApp,
    tickwheel: Tickwheel,
    selector: type[QueueSelector[TaskQueue]] = Lottery,
    *,
    logs_tasks: bool = True,
    takes_batches: bool = False,
) -> Iterator[Consumer]:
    """Run a consumer of all queues of the app in the ``with`` block. ``takes_batches``: see `make_consumer`."""
    stopping = threading.Event()
    reports, written = os.pipe()
    with (
        os.fdopen(reports, "rb"),
        os.fdopen(written, "wb"),
        make_consumer(
            app, tickwheel, written, stopping, selector, logs_tasks=logs_tasks, takes_batches=takes_batches
        ) as consumer,
    ):
        thread = threading.Thread(target=consumer.run, daemon=True)
        thread.start()
        try:
            yield consumer
        finally:
            stopping.set()
            thread.join(30)
            assert not thread.is_alive()
