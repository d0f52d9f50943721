"""A server that is frozen over a due time: everything that is recorded shows when the change really happened."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.event_process_thread import run_event_process
from tests.support.outbox import read_outbox
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

FROZEN_MS = 2_000


@pytest.fixture
def private() -> Iterator[PrivateServer]:
    with PrivateServer() as server:
        yield server


@contextmanager
def frozen(server: Any) -> Iterator[None]:
    """Stop the server with SIGSTOP, and continue it at the end."""
    pid = server.info("server")["process_id"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_lateness_contains_the_time_in_which_the_server_was_frozen(private: PrivateServer, tmp_path: Path) -> None:
    with (
        private.client() as server,
        Tickwheel(private.url, namespace="frozen") as tickwheel,
        run_event_process(private.url, "frozen", tmp_path / "lock") as process,
    ):
        queue = tickwheel.create_queue("jobs")
        # The first timer of a queue makes the driver read the queue's configuration, which would wait for the server.
        queue.enqueue(id="first", delay=timedelta(milliseconds=1))
        [first] = queue.dequeue(wait=timedelta(seconds=20))
        first.complete()
        queue.enqueue(id="late", delay=timedelta(milliseconds=700))
        due = queue.get("late").due.timestamp()
        eventually(lambda: process.health()[0].in_memory, "the timer is in memory")
        # Shortly before the due time, the driver no longer waits for timers, so its call waits in the frozen server.
        eventually(lambda: time.time() > due - 0.1, "the message is almost due")
        with frozen(server):
            assert time.time() < due, "the server must freeze before the message is due"
            eventually(lambda: time.time() > due + FROZEN_MS / 1_000, "the server was frozen for two seconds")

        [message] = queue.dequeue(wait=timedelta(seconds=20))
        message.complete()

        assert sum(n for end, n in queue.lateness().promoted.items() if end > FROZEN_MS) == 1
        eventually(lambda: process.health()[0].lateness_max_ms >= FROZEN_MS, "the metric contains the pause")
        transitions = [transition for transition in read_outbox(server, "frozen") if transition.id == "late"]
        promoted = transitions[1]
        assert promoted.lateness_ms is not None
        assert promoted.lateness_ms >= FROZEN_MS
        assert promoted.time_ms >= due * 1_000 + FROZEN_MS
        times = [transition.time_ms for transition in transitions]
        assert times == sorted(times)
