"""The consumer of a worker process, in a thread of the test."""

import os
import random
import threading
from contextlib import closing

import pytest

from tickwheel import Tickwheel
from tickwheel.tasks import TaskApp
from tickwheel.tasks.runner import Runner
from tickwheel.worker.async_runner import AsyncTaskLoop
from tickwheel.worker.completer import Completer
from tickwheel.worker.consumer import Consumer
from tickwheel.worker.ipc import ReportWriter
from tickwheel.worker.selectors import Lottery
from tickwheel.worker.shared_state import SharedState
from tickwheel.worker.task_log import TaskLog

pytestmark = pytest.mark.integration


def test_a_consumer_that_cannot_report_a_batch_releases_the_batch_and_ends(tickwheel: Tickwheel) -> None:
    app = TaskApp()
    app.queue("work")
    work = tickwheel.create_queue("work")
    work.enqueue(b"one")
    work.enqueue(b"two")
    stopping, ended, state = threading.Event(), threading.Event(), SharedState(1)
    # Every write to this file fails, as if a task had closed the pipe of the process.
    read_only = os.open(os.devnull, os.O_RDONLY)
    with closing(Completer(tickwheel, TaskLog(app))) as completer:
        consumer = Consumer(
            app,
            tickwheel,
            Lottery(app.queues.values(), random.Random(1)),
            Runner(app, AsyncTaskLoop().run),
            completer,
            ReportWriter(read_only, stopping.set),
            state.of_consumer(0),
            0,
            stopping,
            "worker",
            lambda: None,
        )

        def consume() -> None:
            with pytest.raises(OSError, match="Bad file descriptor"):
                consumer.run()
            ended.set()

        threading.Thread(target=consume, daemon=True).start()
        assert ended.wait(20)
    os.close(read_only)
    state.close()
    assert [(message.state, message.attempt) for message in work.messages()] == [("pending", 0)] * 2
