"""A server that is frozen over a due time: everything that is recorded shows when the change really happened."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.event_process_thread import run_event_process
from tests.support.frozen_server import frozen
from tests.support.outbox import read_outbox
from tests.support.wait_until import eventually
from tickwheel import Message, Queue, Tickwheel
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

FROZEN_MS = 2_000
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
RETENTION = timedelta(minutes=10)
WAIT = 20 * SECOND


@pytest.fixture
def private() -> Iterator[PrivateServer]:
    with PrivateServer() as server:
        yield server


def warm_up(queue: Queue) -> None:
    """Let the driver read the queue's configuration at its first timer, because later the server is frozen."""
    queue.enqueue(id="first", delay=timedelta(milliseconds=1))
    [first] = queue.dequeue(wait=WAIT)
    first.complete()


def transitions_of(server: Any, id: str) -> list[OutboxTransition]:
    return [transition for transition in read_outbox(server, "frozen") if transition.id == id]


def test_lateness_contains_the_time_in_which_the_server_was_frozen(private: PrivateServer, tmp_path: Path) -> None:
    with (
        private.client() as server,
        Tickwheel(private.url, namespace="frozen") as tickwheel,
        run_event_process(private.url, "frozen", tmp_path / "lock") as process,
    ):
        queue = tickwheel.create_queue("jobs")
        warm_up(queue)
        queue.enqueue(id="late", delay=timedelta(milliseconds=700))
        due = queue.get("late").due.timestamp()
        eventually(lambda: process.health()[0].in_memory, "the timer is in memory")
        # Shortly before the due time, the driver no longer waits for timers, so its call waits in the frozen server.
        eventually(lambda: time.time() > due - 0.1, "the message is almost due")
        with frozen(server):
            assert time.time() < due, "the server must freeze before the message is due"
            eventually(lambda: time.time() > due + FROZEN_MS / 1_000, "the server was frozen for two seconds")

        [message] = queue.dequeue(wait=WAIT)
        message.complete()

        assert sum(n for end, n in queue.lateness().promoted.items() if end > FROZEN_MS) == 1
        eventually(lambda: process.health()[0].lateness_max_ms >= FROZEN_MS, "the metric contains the pause")
        transitions = transitions_of(server, "late")
        promoted = transitions[1]
        assert promoted.lateness_ms is not None
        assert promoted.lateness_ms >= FROZEN_MS
        assert promoted.time_ms >= due * 1_000 + FROZEN_MS
        times = [transition.time_ms for transition in transitions]
        assert times == sorted(times)


def test_a_retention_counts_from_the_end_of_a_lease_that_a_frozen_server_delayed(
    private: PrivateServer, tmp_path: Path
) -> None:
    with (
        private.client() as server,
        Tickwheel(private.url, namespace="frozen") as tickwheel,
        run_event_process(private.url, "frozen", tmp_path / "lock") as process,
    ):
        queue = tickwheel.create_queue("jobs", lease=SECOND, max_attempts=1, errored_retention=RETENTION)
        warm_up(queue)
        queue.enqueue(id="late")
        [message] = queue.dequeue()
        lease_end = message.lease_until.timestamp()
        eventually(lambda: process.health()[0].in_memory, "the timer is in memory")
        eventually(lambda: time.time() > lease_end - 0.1, "the lease is almost over")
        with frozen(server):
            assert time.time() < lease_end, "the server must freeze before the lease is over"
            eventually(lambda: time.time() > lease_end + FROZEN_MS / 1_000, "the server was frozen for two seconds")
        eventually(lambda: queue.get("late").state == "errored", "the lease is over")

        errored = transitions_of(server, "late")[-1]
    assert errored.time_ms >= lease_end * 1_000 + FROZEN_MS
    assert errored.until_ms == errored.time_ms + RETENTION // MS


@pytest.mark.parametrize(
    ("settle", "state", "duration"),
    [
        (lambda message: message.fail(retry_in=SECOND), State.INVISIBLE, SECOND),
        (lambda message: message.fail(final=True), State.ERRORED, RETENTION),
        (lambda message: message.complete(), State.COMPLETED, RETENTION),
    ],
    ids=["back-off", "errored", "completed"],
)
def test_a_back_off_and_a_retention_count_from_the_call_that_a_frozen_server_delayed(
    private: PrivateServer,
    tmp_path: Path,
    settle: Callable[[Message], object],
    state: State,
    duration: timedelta,
) -> None:
    with (
        private.client() as server,
        Tickwheel(private.url, namespace="frozen") as tickwheel,
        run_event_process(private.url, "frozen", tmp_path / "lock"),
    ):
        queue = tickwheel.create_queue("jobs", retention=RETENTION, errored_retention=RETENTION)
        warm_up(queue)
        queue.enqueue(id="late")
        [message] = queue.dequeue()
        settler = threading.Thread(target=settle, args=(message,))
        with frozen(server):
            settler.start()
            end = time.time() + FROZEN_MS / 1_000
            eventually(lambda: time.time() > end, "the server was frozen for two seconds")
        settler.join(20)

        settled = transitions_of(server, "late")[2]
        assert settled.to_state is state
        # The server cuts its time to whole milliseconds.
        assert settled.time_ms >= int(end * 1_000)
        assert settled.until_ms == settled.time_ms + duration // MS
        if state is State.INVISIBLE:
            [again] = queue.dequeue(wait=WAIT)
            again.complete()
            assert transitions_of(server, "late")[3].time_ms >= settled.until_ms
