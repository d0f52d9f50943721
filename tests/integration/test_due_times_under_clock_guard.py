"""A due time that only a clock step of the server has reached: the caller's script leaves it to the event process."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.integration.driver_calls import calls_of
from tests.support.outbox import read_outbox
from tickwheel import MessageNotFound, Queue, Tickwheel
from tickwheel.rpc.message_conversion import to_ms
from tickwheel.storage.scripts import Call as ScriptCall
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.integration

Call = Callable[[Queue, str, datetime], str]
Neighbours = Callable[[str, int], list[str]]
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
RETENTION = timedelta(minutes=10)
HOUR = timedelta(hours=1)


def enqueue(queue: Queue, id: str, due: datetime) -> str:
    return queue.enqueue(id=id, due=due).state


def reschedule(queue: Queue, id: str, due: datetime) -> str:
    queue.enqueue(id=id, delay=2 * HOUR)
    return queue.reschedule(id, due=due).state


HOLDING = pytest.mark.parametrize("is_holding", [True, False], ids=["holding", "trusting"])
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


@contextmanager
def an_hour_ahead(clock: VirtualClock, server: Any, script: str, *, is_holding: bool) -> Iterator[None]:
    """Let the clock of the server be an hour ahead in each call of a script. The guard's flag is the last byte."""

    def call_an_hour_ahead(call: ScriptCall, execute: Callable[[ScriptCall], Any]) -> Any:
        fence, limits, *rest = call.args
        assert isinstance(limits, bytes)
        server.hset(call.keys[0], "now", to_ms(clock.now + HOUR))
        try:
            return execute(replace(call, args=[fence, limits[:-1] + bytes([is_holding]), *rest]))
        finally:
            server.hset(call.keys[0], "now", to_ms(clock.now))

    with calls_of(script, call_an_hour_ahead):
        yield


@pytest.mark.parametrize("script", ["promote", "expire"])
@HOLDING
def test_while_the_guard_holds_a_change_is_recorded_at_the_trusted_time(
    tw: Tickwheel, clock: VirtualClock, server: Any, script: str, is_holding: bool
) -> None:
    queue = tw.create_queue("q", lease=MINUTE)
    queue.enqueue(id="m", delay=MINUTE)

    def advance(executed: str) -> None:
        if executed == script:
            with an_hour_ahead(clock, server, script, is_holding=is_holding):
                clock.advance(MINUTE)
        else:
            clock.advance(MINUTE)

    advance("promote")
    if script == "expire":
        assert queue.dequeue()
        advance("expire")
    assert queue.get("m").state == "pending"
    # A namespace of the tests has at most four shards.
    last = read_outbox(server, tw._context.namespace, shards=4)[-1]
    assert last.time_ms == to_ms(clock.now) + (0 if is_holding else HOUR // MS)


@pytest.mark.parametrize("ends_as", ["errored", "cancelled"])
@HOLDING
def test_while_the_guard_holds_the_retention_after_a_lease_counts_from_the_trusted_time(
    tw: Tickwheel, clock: VirtualClock, server: Any, ends_as: str, is_holding: bool
) -> None:
    queue = tw.create_queue(
        "q", lease=MINUTE, max_attempts=1, exclusive_key="owner", retention=RETENTION, errored_retention=RETENTION
    )
    queue.enqueue(id="m", metadata={"owner": "ann"})
    assert queue.dequeue()
    if ends_as == "cancelled":
        # A message that is cancelled while it runs holds its exclusive value, and is kept, until the lease ends.
        queue.cancel("m", exclusive_value="ann")

    with an_hour_ahead(clock, server, "expire", is_holding=is_holding):
        clock.advance(MINUTE)

    clock.advance((timedelta(0) if is_holding else HOUR) + RETENTION - MS)
    assert queue.get("m", exclusive_value="ann").state == ends_as
    clock.advance(MS)
    with pytest.raises(MessageNotFound):
        queue.get("m", exclusive_value="ann")


@pytest.mark.parametrize("is_guarded", [True, False], ids=["beyond", "within"])
def test_a_new_deadline_makes_no_message_ready_whose_time_only_a_clock_step_has_reached(
    tw: Tickwheel, clock: VirtualClock, neighbours: Neighbours, is_guarded: bool
) -> None:
    queue, (driven, id) = tw.queue("q"), neighbours("q", 2)
    queue.enqueue(id=driven, delay=MS)
    clock.advance(MS)
    due = clock.now + (30 * MINUTE if is_guarded else SECOND)
    queue.enqueue(id=id, due=due)
    clock.set(clock.now + HOUR)
    assert queue.reschedule(id, deadline=HOUR).state == ("invisible" if is_guarded else "pending")
    clock.run_due()
    assert queue.get(id).state == "pending"
