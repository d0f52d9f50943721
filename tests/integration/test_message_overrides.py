"""A message's own lease and its own bound on attempts: each is its own, and what it has not is the queue's."""

from datetime import timedelta

import pytest

from tickwheel import Message, Queue
from tickwheel.testing import VirtualClock

SECOND = timedelta(seconds=1)
pytestmark = [pytest.mark.integration, pytest.mark.queue(lease=30 * SECOND, max_attempts=3)]


def take(queue: Queue) -> Message:
    [message] = queue.dequeue()
    return message


def test_with_a_lease_of_its_own_a_message_that_fails_has_the_queues_attempts(queue: Queue) -> None:
    queue.enqueue(id="m", lease=10 * SECOND)
    assert [take(queue).fail(retry_in=timedelta(0)) for _ in range(3)] == ["pending", "pending", "errored"]


def test_with_a_lease_of_its_own_a_message_whose_leases_end_has_the_queues_attempts(
    queue: Queue, clock: VirtualClock
) -> None:
    queue.enqueue(id="m", lease=10 * SECOND)
    states = []
    for _ in range(3):
        take(queue)
        clock.advance(10 * SECOND)
        states.append(queue.get("m").state)
    assert states == ["pending", "pending", "errored"]


def test_with_attempts_of_its_own_a_message_has_the_queues_lease(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m", max_attempts=2)
    assert take(queue).lease_until == clock.now + 30 * SECOND
