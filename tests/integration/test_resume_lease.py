"""A token resumes a lease in another client, with the same rights as the message that the dequeue returned."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import InvalidArgument, LeaseLost, Message, MessageNotFound, Queue, Tickwheel
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.integration

PROJECT = {"project": "p", "gpu": "a100"}


@pytest.fixture
def queue(tw: Tickwheel) -> Queue:
    return tw.create_queue("encode", exclusive_key="project", lease=timedelta(seconds=10))


@pytest.fixture
def elsewhere(queue: Queue, tw: Tickwheel, tickwheel_server: PrivateServer) -> Iterator[Queue]:
    """The same queue in another client, which has no state of the message's dequeue."""
    with Tickwheel(tickwheel_server.url, namespace=tw._context.namespace, clock=FRAGMENT) as other:
        yield other.queue("encode")


@pytest.fixture
def message(queue: Queue) -> Message:
    queue.enqueue(b"x" * 30_000, id="film", deadline=timedelta(hours=1), metadata=PROJECT)
    [message] = queue.dequeue(worker="w")
    return message


def test_a_resumed_lease_returns_the_message_that_was_dequeued(message: Message, elsewhere: Queue) -> None:
    same = elsewhere.leased("film", message.token, "p")
    for name in ("id", "queue", "payload", "metadata", "due", "deadline", "attempt", "version", "token", "lease_until"):
        assert getattr(same, name) == getattr(message, name), name


def test_a_resumed_lease_completes_the_message_also_twice(message: Message, elsewhere: Queue) -> None:
    elsewhere.leased("film", message.token, "p").complete()
    elsewhere.leased("film", message.token, "p").complete()
    assert elsewhere.counts()["completed"] == 1


def test_a_resumed_lease_fails_and_extends_the_message(message: Message, elsewhere: Queue, clock: VirtualClock) -> None:
    assert elsewhere.leased("film", message.token, "p").extend(timedelta(minutes=1)) == clock.now + timedelta(minutes=1)
    assert elsewhere.leased("film", message.token, "p").fail(retry_in=timedelta()) == "pending"


def test_another_token_does_not_resume_the_lease(message: Message, elsewhere: Queue) -> None:
    with pytest.raises(LeaseLost, match="the token does not own message 'film'"):
        elsewhere.leased("film", bytes(16), "p")


def test_the_payload_is_read_only_for_the_token_of_the_lease(message: Message, elsewhere: Queue, server: Any) -> None:
    def sent() -> int:
        count: int = server.info("stats")["total_net_output_bytes"]
        return count

    with pytest.raises(LeaseLost):
        elsewhere.leased("film", bytes(16), "p")
    before = sent()
    for _ in range(20):
        with pytest.raises(LeaseLost):
            elsewhere.leased("film", bytes(16), "p")
    assert sent() - before < 10 * len(message.payload)
    assert elsewhere.leased("film", message.token, "p").payload == message.payload


def test_a_lease_that_ended_is_lost(message: Message, elsewhere: Queue, clock: VirtualClock) -> None:
    clock.advance(timedelta(seconds=11))
    with pytest.raises(LeaseLost, match="the message is now pending"):
        elsewhere.leased("film", message.token, "p")


def test_the_worker_of_a_cancelled_message_frees_its_value_from_another_client(
    message: Message, queue: Queue, elsewhere: Queue
) -> None:
    queue.cancel("film", "p")
    queue.enqueue(id="next", metadata=PROJECT)
    assert queue.dequeue() == []
    with pytest.raises(LeaseLost):
        elsewhere.leased("film", message.token, "p").complete()
    assert [following.id for following in queue.dequeue()] == ["next"]


def test_a_missing_message_or_an_invalid_token_is_reported(queue: Queue, elsewhere: Queue) -> None:
    with pytest.raises(MessageNotFound):
        elsewhere.leased("film", bytes(16), "p")
    with pytest.raises(InvalidArgument, match="token must be the 16 bytes of a lease"):
        elsewhere.leased("film", b"short", "p")
    with pytest.raises(InvalidArgument, match="pass exclusive_value"):
        elsewhere.leased("film", bytes(16))
