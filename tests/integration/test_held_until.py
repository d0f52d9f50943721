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


def test_an_extended_lease_counts_from_the_time_at_which_its_extension_was_sent(tw: Tickwheel) -> None:
    queue = tw.create_queue("encode", lease=LEASE_S)
    queue.enqueue_many([NewMessage(), NewMessage(lease=timedelta(minutes=5))])
    messages = {message._lease_ms: message for message in queue.dequeue(limit=2)}
    short, long = messages[20_000], messages[300_000]
    held_until, before = long._held_until, time.monotonic()
    short.extend(60)
    queue.extend_many([long], 60)
    assert before + 60 <= short._held_until <= time.monotonic() + 60
    # An extension shortens no lease.
    assert long._held_until == held_until
