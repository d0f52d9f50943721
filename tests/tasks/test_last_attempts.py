"""The outcome of the last attempt is final, so that a middleware learns that a task has failed for good."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from tests.integration.service_thread import ServiceThread
from tests.support.consumer_thread import run_consumer
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.tasks import Middleware, Outcome, Retry, RetryLater, Run, Task, TaskApp
from tickwheel.testing import PrivateServer
from tickwheel.testing.task_tester import TaskTester
from tickwheel.worker.queue_maximum import QueueMaximum

pytestmark = pytest.mark.integration

SECOND = timedelta(seconds=1)
app = TaskApp()
app.queue("three", max_attempts=3)


class Ends(Middleware):
    def __init__(self) -> None:
        self.seen: list[tuple[int, bool, bool]] = []

    def after_task(self, run: Run, outcome: Outcome) -> None:
        self.seen.append((run.message.attempt, outcome.final, outcome.retry_in is not None))


@app.task(queue="three", max_attempts=2, retry=Retry(SECOND, SECOND))
def fail_twice() -> None:
    raise ConnectionError("no route")


@app.task(queue="three", retry=Retry(SECOND, SECOND))
def fail_three_times() -> None:
    raise ConnectionError("no route")


@app.task(queue="three")
def put_off() -> None:
    raise RetryLater(SECOND)


@app.task(queue="three")
def put_off_at_once() -> None:
    raise RetryLater(0)


@pytest.fixture
def ends() -> Iterator[Ends]:
    middleware = Ends()
    app.add_middleware(middleware)
    yield middleware
    app.middleware.clear()


@pytest.mark.parametrize(("task", "attempts"), [(fail_twice, 2), (fail_three_times, 3), (put_off, 3)])
def test_the_outcome_of_the_last_attempt_is_final(
    tickwheel_tasks: Callable[[TaskApp], TaskTester], ends: Ends, task: Task[..., None], attempts: int
) -> None:
    tasks = tickwheel_tasks(app)
    sent = task.now()
    outcomes = tasks.advance(timedelta(minutes=1))
    assert ends.seen == [(n, n == attempts, n < attempts) for n in range(1, attempts + 1)]
    assert [outcome.final for outcome in outcomes] == [final for _, final, _ in ends.seen]
    assert sent.state() == "errored"


def test_a_call_that_no_task_of_the_app_accepts_ends_with_a_final_outcome(
    tickwheel_tasks: Callable[[TaskApp], TaskTester], tickwheel: Tickwheel
) -> None:
    tasks = tickwheel_tasks(app)
    app.declared("three").enqueue(b"no call")
    assert [outcome.final for outcome in tasks.advance(timedelta(minutes=1))] == [False, False, True]


@pytest.mark.parametrize("over", ["redis", "grpc"])
def test_a_worker_knows_the_last_attempt(
    tickwheel_server: PrivateServer, real_time_service: ServiceThread, namespace: str, ends: Ends, over: str
) -> None:
    url = tickwheel_server.url if over == "redis" else real_time_service.url
    with Tickwheel(url, namespace=namespace) as tickwheel:
        three = tickwheel.create_queue("three", max_attempts=3, backoff=timedelta(0))
        three.enqueue_many([put_off_at_once.message((), {})])
        with run_consumer(app, tickwheel):
            eventually(lambda: three.counts()["errored"], "the attempts are used up")
    assert ends.seen == [(1, False, True), (2, False, True), (3, True, False)]


def test_an_unknown_maximum_is_asked_for_once_a_minute(
    tickwheel_server: PrivateServer, real_time_service: ServiceThread, namespace: str
) -> None:
    with Tickwheel(real_time_service.url, namespace=namespace) as tickwheel:
        maximum = QueueMaximum(tickwheel)
        assert maximum("three") is None
        tickwheel.create_queue("three", max_attempts=3)
        assert maximum("three") is None
        maximum._cache.clear()
        assert maximum("three") == 3
