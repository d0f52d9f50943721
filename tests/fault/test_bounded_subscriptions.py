"""A process is subscribed only to the queues for which a dequeue waits, however many names its dequeues have named."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Any

import pytest

from tests.fault.faulty_server import FaultyServer
from tests.integration.blocking_aio import Blocking, LoopThread
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel, aio
from tickwheel.redis import subscriptions
from tickwheel.redis.wait_list import WaitList

pytestmark = pytest.mark.fault

NAMESPACE, SHARDS = "bounded", 2
QUEUES, MISSING = 1_000, 3_000
# More than the seconds of `SOON_S`, so that the check of one waiter each second does not serve all of them in time.
WAITERS = 30
SHORT, LONG = timedelta(milliseconds=1), timedelta(seconds=100)
SOON_S = 15.0


@pytest.fixture
def server(faulty: FaultyServer) -> Iterator[Any]:
    with faulty.client() as client:
        client.execute_command("ACL", "SETUSER", "worker", "on", ">p", "~*", "allchannels", "+@all", "-sunsubscribe")
        yield client


@pytest.fixture
def user() -> str:
    """Return the user of the client, for the URL. The default user may run all commands."""
    return ""


@pytest.fixture
def url(faulty: FaultyServer, server: Any, user: str) -> str:
    return faulty.url.replace("unix://", f"unix://{user}")


@pytest.fixture(params=["thread", "task"])
def client(request: pytest.FixtureRequest, producer: Tickwheel, url: str) -> Iterator[Any]:
    if request.param == "thread":
        with Tickwheel(url, namespace=NAMESPACE, shards=SHARDS) as client:
            yield client
        return
    loop = LoopThread()
    try:
        blocking: Any = Blocking(loop, aio.Tickwheel(url, namespace=NAMESPACE, shards=SHARDS))
        blocking.open()
        yield blocking
        blocking.close()
    finally:
        loop.close()


@pytest.fixture
def producer(faulty: FaultyServer) -> Iterator[Tickwheel]:
    with Tickwheel(faulty.url, namespace=NAMESPACE, shards=SHARDS) as producer:
        yield producer


def count_channels(server: Any, queue: str = "*") -> int:
    return len(server.execute_command("PUBSUB", "SHARDCHANNELS", f"*:q:{queue}:wake"))


def subscribed_queues(client: Any) -> set[str]:
    return set(client._io.wakeups._subscriptions._by_queue)


def end_idle_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let subscriptions end as soon as no dequeue waits."""
    monkeypatch.setattr(subscriptions, "IDLE_S", -1)


def test_subscriptions_end_after_their_last_dequeue_and_begin_again(
    client: Any, producer: Tickwheel, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WaitList, "begin_sweep", lambda _: None)
    monkeypatch.setattr(subscriptions, "IDLE_S", 1_000)
    used = producer.create_queue("used")
    with ThreadPoolExecutor(WAITERS) as threads:
        names = [f"queue-{n}" for n in range(QUEUES)]
        list(threads.map(producer.create_queue, names))
        waiting = threads.submit(client.queue("used").dequeue, wait=LONG)
        missing = [f"missing-{n}" for n in range(MISSING)]
        list(threads.map(lambda name: client.queue(name).dequeue(wait=SHORT), names + missing))
        assert subscribed_queues(client) == {"used", *names}
        assert count_channels(server) == SHARDS * (QUEUES + 1)

        end_idle_subscriptions(monkeypatch)

        eventually(lambda: count_channels(server) == SHARDS, "the subscriptions end")
        assert subscribed_queues(client) == {"used"}
        again = threads.submit(client.queue(names[0]).dequeue, wait=LONG)
        eventually(lambda: count_channels(server, names[0]) == SHARDS, "the queue has a subscription")
        for queue, dequeued in ((producer.queue(names[0]), again), (used, waiting)):
            queue.enqueue(id="wanted")
            assert [message.id for message in dequeued.result(SOON_S)] == ["wanted"]


def test_the_first_message_of_a_new_queue_reaches_a_dequeue_that_waits_without_a_subscription(
    client: Any, producer: Tickwheel, server: Any
) -> None:
    waiters: WaitList = client._io.wakeups._waiters
    with ThreadPoolExecutor(WAITERS) as threads:
        waiting = [threads.submit(client.queue("new").dequeue, wait=LONG) for _ in range(WAITERS)]
        eventually(lambda: waiters.count() == WAITERS and waiters.wakeup_count, "all dequeues wait")
        assert count_channels(server) == 0

        producer.queue("new").enqueue_many(NewMessage() for _ in range(WAITERS))

        assert not wait(waiting, SOON_S).not_done
        assert [len(dequeued.result()) for dequeued in waiting] == [1] * WAITERS
    assert subscribed_queues(client) == {"new"}


@pytest.mark.parametrize("user", ["worker:p@"])
def test_a_user_that_may_not_end_subscriptions_keeps_them_and_its_wake_ups(
    client: Any, producer: Tickwheel, server: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refusals() -> list[str]:
        return [record.getMessage() for record in caplog.records if "refuses SUNSUBSCRIBE" in record.getMessage()]

    end_idle_subscriptions(monkeypatch)
    names = ["first", "second"]
    for name in names:
        producer.create_queue(name)
        assert client.queue(name).dequeue(wait=SHORT) == []
    eventually(refusals, "the refusal is logged")
    monkeypatch.setattr(WaitList, "begin_sweep", lambda _: None)
    waiters: WaitList = client._io.wakeups._waiters

    with ThreadPoolExecutor(1) as threads:
        for name in names:
            waiting = threads.submit(client.queue(name).dequeue, wait=LONG)
            eventually(lambda: waiters.count() == 1, "the dequeue waits")
            producer.queue(name).enqueue(id="wanted")
            assert [message.id for message in waiting.result(SOON_S)] == ["wanted"]

    assert count_channels(server) == SHARDS * len(names)
    assert subscribed_queues(client) == set(names)
    assert len(refusals()) == 1
    assert not [record for record in caplog.records if "interrupted" in record.getMessage()]
