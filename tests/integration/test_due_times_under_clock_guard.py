"""A due time that only a clock step of the server has reached: the caller's script leaves it to the event process."""

from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta

import pytest

from tickwheel import Queue, Tickwheel
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.integration

Call = Callable[[Queue, str, datetime], str]
Neighbours = Callable[[str, int], list[str]]
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def enqueue(queue: Queue, id: str, due: datetime) -> str:
    return queue.enqueue(id=id, due=due).state


def reschedule(queue: Queue, id: str, due: datetime) -> str:
    queue.enqueue(id=id, delay=2 * HOUR)
    return queue.reschedule(id, due=due).state


CALLS = pytest.mark.parametrize("call", [enqueue, reschedule])


def driven_and_stepped(queue: Queue, clock: VirtualClock, id: str) -> datetime:
    """Return the time up to which an event process drove the shard of an id before the clock stepped by an hour."""
    queue.enqueue(id=id, delay=MS)
    clock.advance(MS)
    driven_to = clock.now
    clock.set(driven_to + HOUR)
    return driven_to


@CALLS
def test_a_due_time_counts_as_reached_within_the_clock_guard(
    tw: Tickwheel, clock: VirtualClock, neighbours: Neighbours, call: Call
) -> None:
    queue, (driven, within, beyond) = tw.queue("q"), neighbours("q", 3)
    driven_to = driven_and_stepped(queue, clock, driven)
    assert call(queue, within, driven_to + SECOND) == "pending"
    assert call(queue, beyond, driven_to + SECOND + MS) == "invisible"
    clock.run_due()
    assert queue.get(beyond).state == "pending"


@CALLS
def test_the_clock_guard_of_the_namespace_decides_which_due_times_count_as_reached(
    tickwheel_server: PrivateServer, namespace: str, call: Call
) -> None:
    guard = timedelta(minutes=1)
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, clock_guard=guard, clock=FRAGMENT) as tickwheel,
        closing(VirtualClock(tickwheel_server.url, namespace)) as clock,
    ):
        queue = tickwheel.queue("q")
        driven_to = driven_and_stepped(queue, clock, "driven")
        assert call(queue, "within", driven_to + guard) == "pending"
        assert call(queue, "beyond", driven_to + guard + MS) == "invisible"


def test_delays_count_from_the_time_of_the_server(tw: Tickwheel, clock: VirtualClock, neighbours: Neighbours) -> None:
    queue, (driven, at_once, delayed) = tw.queue("q"), neighbours("q", 3)
    driven_and_stepped(queue, clock, driven)
    assert queue.enqueue(id=at_once).state == "pending"
    assert queue.enqueue(id=delayed, delay=MS).state == "invisible"
    assert queue.reschedule(delayed, delay=timedelta(0)).state == "pending"
