"""Leases of a queue that was deleted, and leases of the new queue with the same name, in the same calls."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from tickwheel import LeaseLost, Message, NewMessage, Queue, QueueNotFound, Tickwheel

pytestmark = pytest.mark.integration

CALLS: dict[str, Callable[[Queue, list[Message]], object]] = {
    "complete": lambda queue, messages: queue.complete_many(messages, [message.id for message in messages]),
    "release": lambda queue, messages: queue.release_many(messages),
    "extend": lambda queue, messages: queue.extend_many(messages, timedelta(hours=1)),
}
STATES = {"complete": "completed", "release": "pending", "extend": "running"}


def lease_two(client: Tickwheel) -> list[Message]:
    queue = client.create_queue("q", lease=timedelta(minutes=1))
    queue.enqueue_many([NewMessage(id="a"), NewMessage(id="b")])
    messages: list[Message] = []
    while len(messages) < 2:
        messages += queue.dequeue(2)
    return sorted(messages, key=lambda message: message.id)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_applies_to_the_leases_of_the_new_queue_and_reports_those_of_the_deleted_queue(
    tw: Tickwheel, call: str
) -> None:
    deleted = lease_two(tw)
    tw.delete_queue("q", purge=True)
    good = lease_two(tw)
    ends = [message.lease_until for message in good]
    queue = tw.queue("q")
    with pytest.raises(LeaseLost, match="or its queue was deleted") as error:
        CALLS[call](queue, [deleted[0], good[0], deleted[1], good[1]])
    assert [message.token for message in error.value.lost] == [message.token for message in deleted]
    assert [queue.get(message.id).state for message in good] == [STATES[call]] * 2
    if call == "extend":
        assert all(message.lease_until > end for message, end in zip(good, ends, strict=True))


@pytest.mark.parametrize("call", CALLS)
def test_a_call_for_leases_of_a_deleted_queue_alone_is_refused(tw: Tickwheel, call: str) -> None:
    deleted = lease_two(tw)
    tw.delete_queue("q", purge=True)
    lease_two(tw)
    with pytest.raises(QueueNotFound, match="the leases are of a queue with another number"):
        CALLS[call](tw.queue("q"), deleted)


@pytest.mark.parametrize("call", CALLS)
def test_a_client_that_has_cached_the_deleted_queue_settles_the_leases_of_the_new_queue(
    tw: Tickwheel, direct_client: Tickwheel, call: str
) -> None:
    queue = tw.create_queue("q")
    assert queue.dequeue() == []
    known = dict(tw._context.configs)
    direct_client.delete_queue("q", purge=True)
    good = lease_two(direct_client)
    # Another client has recreated the queue and leased the messages, so this client has not read the new configuration.
    tw._context.configs.update(known)
    CALLS[call](queue, good)
    assert [queue.get(message.id).state for message in good] == [STATES[call]] * 2
