"""The consumer of a worker with several queues, in a thread of the test: it wakes for a message of any queue."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from tests.integration.service_thread import ServiceThread
from tests.support.consumer_thread import make_consumer, run_consumer
from tests.support.wait_until import eventually
from tickwheel import Tickwheel, Unavailable
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.several_queues.message_wait import MessageWait
from tickwheel.redis.wait_list import WaitList
from tickwheel.tasks import TaskApp
from tickwheel.testing import PrivateServer
from tickwheel.worker.selectors import Lottery, ReducedLottery

pytestmark = pytest.mark.integration

NAMES = ("red", "green", "blue")


class Activity:
    """The calls of the consumer, and its sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dequeues: list[str] = []
        self.waits = self.checks = self.sleeps = 0
        begin, check, may_sleep, plan = MessageWait.__init__, MessageWait._check, WaitList.may_sleep, Dequeue.plan

        def counted_begin(wait: MessageWait, *args: Any) -> None:
            self.waits += 1
            begin(wait, *args)

        def counted_check(wait: MessageWait) -> Any:
            self.checks += 1
            return check(wait)

        def counted_sleep(waiters: WaitList, joint: Any) -> bool:
            is_asleep = may_sleep(waiters, joint)
            self.sleeps += is_asleep
            return is_asleep

        def counted_dequeue(dequeue: Dequeue, factory: Any) -> Any:
            self.dequeues.append(dequeue._queue)
            return plan(dequeue, factory)

        monkeypatch.setattr(MessageWait, "__init__", counted_begin)
        monkeypatch.setattr(MessageWait, "_check", counted_check)
        monkeypatch.setattr(WaitList, "may_sleep", counted_sleep)
        monkeypatch.setattr(Dequeue, "plan", counted_dequeue)


@pytest.fixture(params=["redis", "grpc"])
def client(request: pytest.FixtureRequest, tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as direct:
        for name in NAMES:
            direct.create_queue(name)
        if request.param == "redis":
            yield direct
            return
        service: ServiceThread = request.getfixturevalue("real_time_service")
        with Tickwheel(service.url, namespace=namespace) as over_service:
            yield over_service


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def app(ran: list[str]) -> TaskApp:
    app = TaskApp()
    for name in NAMES:
        app.queue(name)

    @app.task(queue="red")
    def note(name: str) -> None:
        ran.append(name)

    return app


def send(app: TaskApp, client: Tickwheel, queue: str, argument: str) -> None:
    [task] = app.tasks.values()
    client.queue(queue).enqueue_many([task.message((argument,), {})])


def test_an_idle_consumer_wakes_for_a_message_of_any_queue_and_polls_none(
    app: TaskApp, client: Tickwheel, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = Activity(monkeypatch)
    with run_consumer(app, client, ReducedLottery):
        for n, name in enumerate(NAMES):
            before = activity.sleeps
            eventually(lambda: activity.sleeps > before, "the consumer sleeps")  # noqa: B023
            activity.dequeues.clear()
            send(app, client, name, f"{name} {n}")
            eventually(lambda: f"{name} {n}" in ran, "the task has run")  # noqa: B023
            assert activity.dequeues[0] == name


def test_an_idle_consumer_checks_all_queues_at_once_and_dequeues_from_none(
    app: TaskApp, client: Tickwheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = Activity(monkeypatch)
    with run_consumer(app, client, ReducedLottery):
        eventually(lambda: activity.sleeps, "the consumer sleeps")
        activity.dequeues.clear()
        activity.checks = activity.waits = 0
        eventually(lambda: activity.waits >= 4, "four more waits have begun")
        # A check when a wait of a second begins. A sweep can end the sleep, and needs no other check.
        # One wait may have begun before the count.
        assert activity.checks <= activity.waits + 1
        assert activity.dequeues == []


def test_a_selector_that_draws_once_still_waits_at_the_drawn_queue(
    app: TaskApp, client: Tickwheel, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = Activity(monkeypatch)
    with run_consumer(app, client, Lottery):
        send(app, client, "blue", "late")
        eventually(lambda: ran == ["late"], "the task has run")
    assert activity.checks == 0


def test_a_batch_that_cannot_be_released_is_logged_once(
    app: TaskApp, client: Tickwheel, caplog: pytest.LogCaptureFixture
) -> None:
    with make_consumer(app, client, -1, Event(), ReducedLottery) as consumer:
        for _ in range(2):
            consumer._queues._on_unreleased("red", 3, Unavailable(f"no answer of {client._context.namespace}"))
    [line] = [line for line in caplog.records if (line.name, line.levelname) == ("tickwheel.worker", "WARNING")]
    assert line.message.startswith("cannot release messages of queue 'red'")
    assert line.__dict__["fields"] == {"event": "not released", "queue": "red", "count": 3}
