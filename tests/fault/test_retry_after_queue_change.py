"""A retried call gets its first answer even if the queue was changed or blocked before the retry."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.fault.flaky_proxy import FlakyProxy
from tickwheel import NewMessage, Queue, QueueBlocked, Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

LEASE = timedelta(minutes=9)
MARK = "the-mark"
CHANGES: dict[str, Callable[[Tickwheel], Any]] = {
    "another configuration": lambda other: other.create_queue("work", update=True, lease=LEASE),
    "blocked": lambda other: other.queue("work").block(),
    "blocked and unblocked": lambda other: (other.queue("work").block(), other.queue("work").unblock()),
}
DEQUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "filter": {"where": {"region": "eu"}},
    "request": {"request_id": "worker:1"},
    "exact": {"consistency": "exact"},
}


@pytest.fixture(params=[1, 4], ids=["1-shard", "4-shards"])
def clients(
    request: pytest.FixtureRequest, tickwheel_server: PrivateServer, namespace: str, proxy: FlakyProxy
) -> Iterator[tuple[Tickwheel, Tickwheel]]:
    """A client that connects through the proxy, and a client that does not."""
    with (
        Tickwheel(proxy.url, namespace=namespace, shards=request.param) as through,
        Tickwheel(tickwheel_server.url, namespace=namespace) as other,
    ):
        yield through, other


def lose_next_answer(proxy: FlakyProxy, change: Callable[[], object]) -> None:
    """Lose the answer to the next call that contains MARK, and make the change before the client notices the loss."""
    proxy.loses_answer_to, proxy.times, proxy.when_lost = MARK.encode(), 1, change


@pytest.mark.parametrize("kind", DEQUEUES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_retried_dequeue_returns_the_messages_that_it_leased(
    clients: tuple[Tickwheel, Tickwheel], proxy: FlakyProxy, change: str, kind: str
) -> None:
    through, other = clients
    queue = through.create_queue("work")
    queue.enqueue(id="m", metadata={"region": "eu"})
    lose_next_answer(proxy, lambda: CHANGES[change](other))
    [message] = queue.dequeue(limit=5, worker=MARK, **DEQUEUES[kind])
    assert proxy.lost == 1
    assert (message.id, message.attempt, queue.counts()["running"]) == ("m", 1, 1)
    message.complete()


@pytest.mark.parametrize("id", [None, MARK])
@pytest.mark.parametrize("change", CHANGES)
def test_a_retried_enqueue_reports_that_the_message_was_added(
    clients: tuple[Tickwheel, Tickwheel], proxy: FlakyProxy, change: str, id: str | None
) -> None:
    through, other = clients
    queue = through.create_queue("work")
    lose_next_answer(proxy, lambda: CHANGES[change](other))
    results = queue.enqueue_many([NewMessage(MARK.encode(), id=id)])
    assert proxy.lost == 1
    assert [(result.state, result.created) for result in results] == [("pending", True)]
    assert queue.counts()["pending"] == 1


def test_on_a_blocked_queue_existing_messages_are_confirmed_and_new_messages_are_refused(
    clients: tuple[Tickwheel, Tickwheel],
) -> None:
    queue: Queue = clients[0].create_queue("work")
    queue.enqueue_many([NewMessage(b"a", id="existing")] * 2)
    leased = queue.dequeue(request_id="worker:1")
    queue.block()
    assert not queue.enqueue(b"a", id="existing").created
    with pytest.raises(QueueBlocked):
        queue.enqueue_many([NewMessage(b"a", id="existing"), NewMessage(b"b", id="new")])
    assert [message.token for message in queue.dequeue(request_id="worker:1")] == [message.token for message in leased]
    with pytest.raises(QueueBlocked):
        queue.dequeue(request_id="worker:2")
    assert queue.counts() | {"running": 1, "pending": 0} == queue.counts()
