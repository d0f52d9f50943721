"""A message's own lease and limit of attempts apply independently; the queue's setting applies to the other."""

from datetime import timedelta

import pytest

from tickwheel import Message, Queue
from tickwheel.testing import VirtualClock

SECOND = timedelta(seconds=1)
pytestmark = [pytest.mark.integration, pytest.mark.queue(lease=30 * SECOND, max_attempts=3)]


def take(queue: Queue) -> Message:
    [message] = queue.dequeue()
    return message


def test_a_message_with_its_own_lease_has_the_attempts_of_the_queue_when_it_fails(queue: Queue) -> None:
    queue.enqueue(id="m", lease=10 * SECOND)
    assert [take(queue).fail(retry_in=timedelta(0)) for _ in range(3)] == ["pending", "pending", "errored"]


def test_a_message_with_its_own_lease_has_the_attempts_of_the_queue_when_its_leases_end(
    queue: Queue, clock: VirtualClock
) -> None:
    queue.enqueue(id="m", lease=10 * SECOND)
    states = []
    for _ in range(3):
        take(queue)
        clock.advance(10 * SECOND)
        states.append(queue.get("m").state)
    assert states == ["pending", "pending", "errored"]


def test_a_message_with_its_own_attempts_has_the_lease_of_the_queue(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m", max_attempts=2)
    assert take(queue).lease_until == clock.now + 30 * SECOND
