"""The consumer of a worker process, in a thread of the test."""

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.consumer_thread import make_consumer, run_consumer
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.model.message import LeasedMessage
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.tasks import Middleware, Reject, TaskApp, current
from tickwheel.worker import task_log
from tickwheel.worker.shared_state import MessageState

pytestmark = pytest.mark.integration


def test_a_consumer_that_cannot_report_a_batch_releases_the_batch_and_ends(tickwheel: Tickwheel) -> None:
    app = TaskApp()
    app.queue("work")
    work = tickwheel.create_queue("work")
    work.enqueue(b"one")
    work.enqueue(b"two")
    stopping, ended = threading.Event(), threading.Event()
    # Every write to this file fails, as if a task had closed the pipe of the process.
    read_only = os.open(os.devnull, os.O_RDONLY)
    with make_consumer(app, tickwheel, read_only, stopping) as consumer:

        def consume() -> None:
            with pytest.raises(OSError, match="Bad file descriptor"):
                consumer.run()
            ended.set()

        threading.Thread(target=consume, daemon=True).start()
        assert ended.wait(20)
    os.close(read_only)
    assert [(message.state, message.attempt) for message in work.messages()] == [("pending", 0)] * 2


@pytest.fixture
def broken_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A filter of the app that fails for every line of the worker."""
    # Another test may have reported the same error.
    monkeypatch.setattr(task_log, "_error_throttle", LogThrottle())
    # pytest's plug-ins may replace the hook.
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)

    def fail(record: logging.LogRecord) -> bool:
        raise RuntimeError("the filter of the app has failed")

    log = logging.getLogger("tickwheel.worker")
    log.addFilter(fail)
    yield
    log.removeFilter(fail)


@pytest.mark.usefixtures("broken_log")
def test_a_log_that_fails_changes_the_outcome_of_no_task_and_stops_no_consumer(
    tickwheel: Tickwheel, capsys: pytest.CaptureFixture[str]
) -> None:
    app = TaskApp()
    work = tickwheel.create_queue("work", max_attempts=1)

    @app.task(queue="work")
    def succeed(number: int) -> int:
        return number

    @app.task(queue="work")
    def fail() -> None:
        raise ValueError("the task")

    def counts() -> tuple[int, int]:
        found = work.counts()
        return found["completed"], found["errored"]

    with run_consumer(app, tickwheel):
        for n in range(3):
            work.enqueue_many([succeed.message((n,), {}), fail.message((), {})])
            # The next messages are another batch, which waits for the settlement of an earlier one.
            eventually(lambda: counts() == (n + 1, n + 1), "the outcomes are stored")  # noqa: B023
    assert "the filter of the app has failed" in capsys.readouterr().err


def test_messages_that_must_not_wait_are_released_while_the_first_task_of_their_batch_runs(
    tickwheel: Tickwheel,
) -> None:
    app, go = TaskApp(), threading.Event()
    work = tickwheel.create_queue("work")
    app._may_wait = lambda message: message.id == "2"

    @app.task(name="wait", queue="work")
    def wait() -> None:
        go.wait(20)

    calls = [replace(wait.message((), {}), id=str(n), deadline=timedelta(seconds=n)) for n in range(4)]
    work.enqueue_many(calls)

    def progress() -> list[tuple[str, int]]:
        return [(message.state, message.attempt) for message in (work.get(str(n)) for n in range(4))]

    released = [("running", 1), ("pending", 0), ("running", 1), ("pending", 0)]
    with run_consumer(app, tickwheel, takes_batches=True):
        try:
            eventually(lambda: progress() == released, "two messages are released")
        finally:
            go.set()
        eventually(lambda: progress() == [("completed", 1)] * 4, "all tasks run")


def test_a_task_whose_lease_has_run_out_does_not_begin_and_its_message_is_released(tickwheel: Tickwheel) -> None:
    app = TaskApp()
    app.queue("work", batch=2)
    # Nothing renews the leases of this consumer.
    work = tickwheel.create_queue("work", lease=timedelta(seconds=1))
    began: list[str] = []

    @app.task(name="wait", queue="work")
    def wait_until_lost() -> None:
        began.append(current().message.id)
        eventually(current().is_lost, "the lease runs out by the clock of the worker")
        work.block(enqueue=False)

    call = wait_until_lost.message((), {})
    work.enqueue_many([replace(call, id=str(n), deadline=timedelta(seconds=n)) for n in range(2)])
    with run_consumer(app, tickwheel, takes_batches=True):
        eventually(lambda: began and work.get("1").state == "pending", "the second message is released")
        assert (work.get("1").attempt, began) == (0, ["0"])


def test_a_lease_that_the_task_itself_extends_is_not_lost_and_ends_no_process(tickwheel: Tickwheel) -> None:
    app = TaskApp()
    # Nothing else renews the leases of this consumer.
    work = tickwheel.create_queue("work", lease=timedelta(seconds=1))
    held_for: list[float] = []

    @app.task(name="extend", queue="work")
    def extend() -> None:
        current().message.extend(60)  # type: ignore[attr-defined]
        [batch_state, _] = consumer._batch_states
        held_for.append(batch_state.running_until - time.monotonic())

    with run_consumer(app, tickwheel) as consumer:
        work.enqueue_many([extend.message((), {})])
        eventually(lambda: work.counts()["completed"] == 1, "the task has ended")
    assert 30 < held_for[0] <= 60


def test_a_worker_takes_one_message_at_a_time_while_a_queue_delivers_messages_that_must_not_wait(
    tickwheel: Tickwheel,
) -> None:
    app = TaskApp()
    app._may_wait = lambda message: int(message.id) >= 20
    app.queue("work", batch=10)
    work = tickwheel.create_queue("work")
    batches: list[int] = []

    class Batches(Middleware):
        def before_batch(self, queue: str, messages: Sequence[LeasedMessage]) -> None:
            batches.append(len(messages))

    app.add_middleware(Batches())

    @app.task(name="pass", queue="work")
    def succeed() -> None: ...

    work.enqueue_many(replace(succeed.message((), {}), id=str(n), deadline=timedelta(seconds=n)) for n in range(60))
    with run_consumer(app, tickwheel, takes_batches=True):
        eventually(lambda: work.counts()["completed"] == 60, "all tasks run")
    # Only the first batch is released in part.
    assert batches[:20] == [1] * 20
    assert batches[20:] == [1, 2, 4, 8, 10, 10, 5]


def test_a_failure_that_is_not_retried_is_marked_in_the_shared_memory_until_the_server_has_it(
    tickwheel: Tickwheel, caplog: pytest.LogCaptureFixture
) -> None:
    app, go = TaskApp(), threading.Event()
    work = tickwheel.create_queue("work")

    @app.task(name="good", queue="work")
    def succeed() -> None:
        pass

    @app.task(name="bad", queue="work")
    def reject() -> None:
        raise Reject("never")

    def hold(record: logging.LogRecord) -> bool:
        if "succeeded" in record.getMessage():
            # The thread that logs this line settles the other message after it.
            go.wait(20)
        return True

    work.enqueue_many([succeed.message((), {}), replace(reject.message((), {}), deadline=timedelta(seconds=1))])
    log = logging.getLogger("tickwheel.worker")
    log.addFilter(hold)
    try:
        with (
            caplog.at_level(logging.INFO, log.name),
            run_consumer(app, tickwheel, takes_batches=True) as consumer,
        ):
            batch_state = consumer._batch_states[0]
            eventually(lambda: batch_state.state(1) is MessageState.REJECTED, "the failure is marked")
            go.set()
            eventually(lambda: work.counts()["errored"] == 1, "the failure is reported")
    finally:
        go.set()
        log.removeFilter(hold)


def test_a_consumer_comes_round_while_it_waits_and_after_each_task(tickwheel: Tickwheel) -> None:
    app = TaskApp()
    work, rounds = tickwheel.create_queue("work"), list[float]()

    @app.task(queue="work")
    def succeed() -> None: ...

    with run_consumer(app, tickwheel) as consumer:
        consumer._mark_round = rounds.append
        eventually(lambda: len(rounds) >= 3, "the idle consumer comes round")
        work.enqueue_many([succeed.message((), {}) for _ in range(3)])
        eventually(lambda: work.counts()["completed"] == 3, "the tasks run")
    # It is not checked after its end, and while it waits until the server has accepted the outcomes.
    assert rounds[-1] == 0.0
    assert rounds.count(0.0) >= 2
    times = [at for at in rounds if at]
    assert times == sorted(times)
