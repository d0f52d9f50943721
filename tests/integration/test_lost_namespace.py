"""Clients of a namespace that has lost its state: their calls are refused, because their queues no longer exist."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from tests.conftest import Contents
from tests.integration.service_thread import ServiceThread
from tickwheel import (
    LeaseLost,
    NamespaceGone,
    NamespaceNotFound,
    NewMessage,
    Queue,
    QueueNotFound,
    Tickwheel,
    TickwheelError,
    aio,
)
from tickwheel.doctor import audit
from tickwheel.storage.keys import namespace_key, shard_prefix
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

CALLS: dict[str, Callable[[Queue], object]] = {
    "enqueue": lambda queue: queue.enqueue(b"old", id="same", metadata={"v": "1"}),
    "enqueue_many": lambda queue: queue.enqueue_many(NewMessage(id=f"m{n}", metadata={"v": "1"}) for n in range(9)),
    "get": lambda queue: queue.get("same"),
    "explain": lambda queue: queue.explain("same"),
    "cancel": lambda queue: queue.cancel("same"),
    "reschedule": lambda queue: queue.reschedule("same", delay=timedelta(0)),
    "redrive": lambda queue: queue.redrive("same"),
    "purge": lambda queue: queue.purge(),
    "depth": lambda queue: queue.depth({"v": "1"}),
}


@pytest.fixture(params=[1, 4], ids=["1-shard", "4-shards"])
def open_client(
    request: pytest.FixtureRequest, tickwheel_server: PrivateServer, namespace: str
) -> Iterator[Callable[[], Tickwheel]]:
    opened = list[Tickwheel]()

    def another() -> Tickwheel:
        opened.append(Tickwheel(tickwheel_server.url, namespace=namespace, shards=request.param))
        return opened[-1]

    yield another
    for client in opened:
        client.close()


def test_a_call_for_a_deleted_queue_is_refused_and_the_repeated_call_applies_to_the_new_queue(
    open_client: Callable[[], Tickwheel], tickwheel_server: PrivateServer, contents: Contents
) -> None:
    old = open_client()
    queues = [old.create_queue(name) for name in ("gone", "renumbered", "now-exclusive")]
    queues[1].enqueue(id="same")
    [leased] = queues[1].dequeue()
    for queue in queues:
        assert queue.dequeue() == []
    known = dict(old._context.configs)
    tickwheel_server.clear(old._context.namespace)

    new = open_client()
    renumbered, exclusive = new.create_queue("renumbered"), new.create_queue("now-exclusive", exclusive_key="v")
    renumbered.enqueue(b"new", id="same", metadata={"v": "1"})
    exclusive.enqueue(b"new", id="same", metadata={"v": "1"})
    stored = contents(new._context.namespace)
    for queue in queues:
        for call in CALLS.values():
            # The configurations are as before any call; each refusal updates them.
            old._context.configs.clear()
            old._context.configs.update(known)
            with pytest.raises(QueueNotFound, match=queue.name):
                call(queue)
        # With auto_create, a missing queue is empty.
        old._context.configs.update(known)
        assert queue.dequeue(10) == []
    with pytest.raises((LeaseLost, QueueNotFound)):
        leased.complete()
    assert contents(new._context.namespace) == stored

    for queue in queues:
        with suppress(QueueNotFound):
            queue.depth({"v": "1"})
    assert queues[1].enqueue(b"new", id="same", metadata={"v": "1"}).created is False
    assert queues[0].enqueue(id="m").created
    assert [message.id for message in queues[2].dequeue()] == ["same"]
    assert not new._run(audit(new._context))


def test_a_batch_in_progress_is_refused_if_its_queue_was_recreated(
    open_client: Callable[[], Tickwheel], tickwheel_server: PrivateServer
) -> None:
    old = open_client()
    queue = old.create_queue("q")

    def batch() -> Iterator[NewMessage]:
        for n in range(2_000):
            if n == 1_500:
                tickwheel_server.clear(old._context.namespace)
                new = open_client()
                new.create_queue("first")
                new.create_queue("q", exclusive_key="v")
                # The client reads the new configuration, as another thread would.
                assert queue.config().exclusive_key == "v"
            yield NewMessage(id=f"m{n}")

    with pytest.raises(QueueNotFound, match="this call is for the previous queue"):
        queue.enqueue_many(batch())
    assert not any(queue.counts().values())
    assert not old._run(audit(old._context))


def test_a_queue_number_is_not_reused_after_the_counter_was_lost(
    open_client: Callable[[], Tickwheel], server: Any
) -> None:
    client = open_client()
    numbers = [client.create_queue(name).config().number for name in ("a", "b")]
    server.hdel(namespace_key(client._context.namespace), "queue_numbers")
    assert client.create_queue("c").config().number == max(numbers) + 1


def test_every_call_reports_that_the_namespace_no_longer_exists(
    open_client: Callable[[], Tickwheel], tickwheel_server: PrivateServer
) -> None:
    old = open_client()
    queue = old.create_queue("q")
    assert queue.dequeue() == []
    tickwheel_server.clear(old._context.namespace)
    calls: list[Callable[[], object]] = [
        queue.dequeue,
        lambda: queue.dequeue(wait=timedelta(hours=1)),
        lambda: old.queue("another").dequeue(),
        queue.counts,
        old.queues,
        lambda: old.create_queue("q"),
        lambda: old.setting("route:mail.send"),
        old.settings,
        *(lambda call=call: call(queue) for call in CALLS.values()),
    ]
    for _ in range(2):
        for call in calls:
            with pytest.raises(NamespaceGone, match=r"no longer exists .*: the server lost its data"):
                call()
    # A program that opens the namespace recreates the namespace for all programs.
    open_client()
    assert queue.enqueue().created
    assert len(queue.dequeue()) == 1


def test_every_call_over_the_service_reports_that_the_namespace_no_longer_exists(
    real_time_service: ServiceThread, tickwheel_server: PrivateServer, namespace: str
) -> None:
    with Tickwheel(real_time_service.url, namespace=namespace) as old:
        queue = old.create_queue("q")
        queue.enqueue(id="same")
        tickwheel_server.clear(namespace)
        calls: list[Callable[[Queue], object]] = [*CALLS.values(), *CALLS.values(), Queue.dequeue, Queue.counts]
        calls.append(lambda queue: old.queues())
        for call in calls:
            with pytest.raises(NamespaceGone, match=r"no longer exists .*: the server lost its data"):
                call(queue)
        with pytest.raises(NamespaceNotFound):
            old.delete_namespace()
        with pytest.raises(NamespaceNotFound):
            Tickwheel(real_time_service.url, namespace=namespace, existing=True)
        with Tickwheel(real_time_service.url, namespace=namespace):
            assert queue.enqueue().created


def test_every_call_of_an_asyncio_client_of_the_service_reports_the_lost_namespace(
    real_time_service: ServiceThread, tickwheel_server: PrivateServer, namespace: str
) -> None:
    async def call_twice() -> None:
        async with aio.Tickwheel(real_time_service.url, namespace=namespace) as old:
            queue = await old.create_queue("q")
            tickwheel_server.clear(namespace)
            for _ in range(2):
                with pytest.raises(NamespaceGone):
                    await queue.dequeue()
                with pytest.raises(NamespaceGone):
                    await queue.enqueue(b"")

    asyncio.run(call_twice())


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4)])
def test_a_client_with_an_outdated_number_of_shards_adds_nothing(
    tickwheel_server: PrivateServer, namespace: str, before: int, after: int
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=before) as old:
        old.create_queue("known").enqueue()
        tickwheel_server.clear(namespace)
        with Tickwheel(tickwheel_server.url, namespace=namespace, shards=after) as new:
            for name in ("fresh", "known"):
                queue = new.create_queue(name)
                for _ in range(3):
                    with pytest.raises(TickwheelError, match="recreated with a different number of shards"):
                        old.queue(name).enqueue()
                    with pytest.raises(TickwheelError, match="recreated with a different number of shards"):
                        old.create_queue(f"{name} of old".replace(" ", "-"))
                assert not any(queue.counts().values())


def test_no_queue_is_created_in_a_namespace_without_a_known_number_of_shards(
    open_client: Callable[[], Tickwheel], tickwheel_server: PrivateServer, contents: Contents
) -> None:
    old = open_client()
    old.create_queue("q")
    tickwheel_server.clear(old._context.namespace)
    for _ in range(2):
        with pytest.raises(TickwheelError, match=r"no longer exists"):
            old.queue("q").enqueue()
    assert contents(old._context.namespace) == {}


def test_shards_with_state_follow_a_metadata_shard_that_lost_its_state(
    open_client: Callable[[], Tickwheel], server: Any
) -> None:
    old = open_client()
    for seconds in (10, 20, 30):
        old.create_queue("q", lease=timedelta(seconds=seconds), update=True)
    server.delete(*server.scan_iter(match=f"{shard_prefix(old._context.namespace, 0)}*", count=10_000))
    new = open_client()
    new.queue("q").enqueue_many(NewMessage(id=f"m{n}") for n in range(20))
    assert len(new.queue("q").dequeue(20)) == 20
