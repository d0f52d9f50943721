"""A dequeue records until when this process certainly holds each lease, by its own clock."""

import time
from datetime import timedelta

import pytest

from tickwheel import NewMessage, Tickwheel

pytestmark = pytest.mark.integration

LEASE_S = 20.0


@pytest.mark.parametrize("wait_s", [0, 1])
def test_a_lease_counts_from_the_time_at_which_its_dequeue_was_sent(tw: Tickwheel, wait_s: float) -> None:
    queue = tw.create_queue("encode", lease=LEASE_S)
    # A large payload is read by a further call.
    queue.enqueue_many(
        [NewMessage(b"small"), NewMessage(b"x" * 30_000), NewMessage(b"own", lease=timedelta(minutes=5))]
    )
    before = time.monotonic()
    messages = queue.dequeue(limit=3, wait=wait_s)
    after = time.monotonic()
    assert len(messages) == 3
    for message in messages:
        seconds = 300.0 if message.payload == b"own" else LEASE_S
        assert before + seconds <= message._held_until <= after + seconds
