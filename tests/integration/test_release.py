"""Release ends a lease as if the message had not been delivered, for workers that stop in time."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import InvalidArgument, LeaseLost, NewMessage, Queue, Tickwheel
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition
from tickwheel.testing import VirtualClock

SECOND = timedelta(seconds=1)
pytestmark = [pytest.mark.integration, pytest.mark.queue(lease=30 * SECOND, max_attempts=3)]

Dump = Callable[[], dict[str, Any]]


@pytest.fixture
def films(tw: Tickwheel) -> Queue:
    return tw.create_queue("films", exclusive_key="project", lease=30 * SECOND)


def test_a_released_message_is_pending_at_once_and_keeps_all_its_fields(
    queue: Queue, history: Callable[[str], list[OutboxTransition]]
) -> None:
    queue.enqueue(b"payload", id="m", metadata={"a": "b"}, deadline=SECOND)
    [first] = queue.dequeue(worker="w")
    first.release()
    view = queue.get("m")
    assert (view.state, view.attempt, view.worker, view.version) == ("pending", 0, "", 3)
    [again] = queue.dequeue(where={"a": "b"})
    assert (again.payload, again.metadata, again.deadline, again.attempt) == (b"payload", {"a": "b"}, first.deadline, 1)
    released = history("m")[2]
    assert (released.from_state, released.to_state, released.version) == (State.RUNNING, State.PENDING, 3)
    assert released.attempt == 0


def test_released_deliveries_do_not_count_as_attempts(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    attempts = []
    for _ in range(3):
        for _ in range(5):
            [message] = queue.dequeue()
            message.release()
        [message] = queue.dequeue()
        attempts.append(message.attempt)
        message.fail("boom", retry_in=timedelta(0))
    assert (attempts, queue.get("m").state) == ([1, 2, 3], "errored")


def test_a_release_keeps_the_error_of_the_attempt_before(queue: Queue) -> None:
    queue.enqueue(id="m")
    queue.dequeue()[0].fail("boom", retry_in=timedelta(0))
    queue.dequeue()[0].release()
    assert (queue.get("m").error, queue.get("m").attempt) == ("boom", 1)


def test_a_released_message_keeps_its_place_in_the_order(queue: Queue) -> None:
    for n in range(3):
        queue.enqueue(id=f"m{n}", deadline=(n + 1) * SECOND)
    [first] = queue.dequeue()
    first.release()
    [again] = queue.dequeue(consistency="exact")
    assert again.id == first.id == "m0"


def test_the_exclusive_value_of_a_released_message_is_free(films: Queue) -> None:
    for n in range(3):
        films.enqueue(id=f"m{n}", deadline=(n + 1) * SECOND, metadata={"project": "p"})
    [first] = films.dequeue()
    films.enqueue(id="urgent", deadline=timedelta(0), metadata={"project": "p"})
    assert films.dequeue() == []
    first.release()
    order = []
    while messages := films.dequeue():
        order.append(messages[0].id)
        messages[0].complete()
    assert order == ["urgent", "m0", "m1", "m2"]


def test_a_timer_of_the_released_lease_does_nothing(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    queue.dequeue()[0].release()
    clock.advance(29 * SECOND)
    [message] = queue.dequeue()
    clock.advance(2 * SECOND)
    assert queue.get("m").state == "running"
    message.complete()


def test_a_lost_lease_cannot_be_released(queue: Queue, clock: VirtualClock, dump: Dump) -> None:
    queue.enqueue(id="m")
    [message] = queue.dequeue()
    message.release()
    before = dump()
    for call in (message.release, message.complete):
        with pytest.raises(LeaseLost):
            call()
    assert dump() == before


def test_release_many_releases_all_held_messages_and_names_the_others(queue: Queue) -> None:
    queue.enqueue_many(NewMessage(id=f"m{n}", metadata={"a": str(n)}) for n in range(200))
    messages = queue.dequeue(limit=200)
    lost = messages[::50]
    for message in lost:
        message.complete()
    with pytest.raises(LeaseLost) as refused:
        queue.release_many(messages)
    assert {message.id for message in refused.value.lost} == {message.id for message in lost}
    assert queue.counts() | {"pending": 196, "running": 0, "completed": 4} == queue.counts()
    assert {message.attempt for message in queue.dequeue(limit=200)} == {1}


def test_release_many_works_over_queues_and_values(queue: Queue, films: Queue) -> None:
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(30))
    films.enqueue_many(NewMessage(id="f", metadata={"project": f"p{n}"}) for n in range(30))
    queue.release_many([*queue.dequeue(limit=30), *films.dequeue(limit=30)])
    assert (queue.counts()["pending"], films.counts()["pending"]) == (30, 30)
    queue.release_many([])


@pytest.mark.parametrize("messages", ["m", None, ["m"], [None], 3])
def test_a_message_that_was_not_dequeued_cannot_be_released(queue: Queue, messages: Any) -> None:
    with pytest.raises(InvalidArgument, match="release_many takes"):
        queue.release_many(messages)
