"""Explain: why a message is not running, and when it will."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from tickwheel import LeaseLost, Queue, Tickwheel
from tickwheel.routing import shard_of
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

SECOND = timedelta(seconds=1)


@pytest.fixture
def queue(tw: Tickwheel) -> Queue:
    return tw.create_queue("q", max_attempts=2)


@pytest.fixture
def exclusive(tw: Tickwheel) -> Queue:
    return tw.create_queue("exclusive", exclusive_key="of")


def test_it_is_not_due(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m", delay=timedelta(hours=1))
    found = queue.explain("m")
    assert (found.id, found.state, found.code, found.until) == (
        "m",
        "invisible",
        "invisible",
        clock.now + 3600 * SECOND,
    )
    assert found.reason == f"it is not due until {found.until:%Y-%m-%d %H:%M:%S}.{clock.now.microsecond // 1000:03} UTC"


def test_it_waits_for_its_back_off(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    queue.dequeue()[0].fail(retry_in=SECOND)
    found = queue.explain("m")
    assert (found.code, found.until) == ("invisible", clock.now + SECOND)
    assert found.reason.startswith("its next attempt waits for its back-off until ")


def test_it_is_next(queue: Queue) -> None:
    queue.enqueue(id="m")
    found = queue.explain("m")
    assert (found.state, found.code, found.ahead, found.until) == ("pending", "next", 0, None)


def test_others_are_more_urgent(queue: Queue, clock: VirtualClock, neighbours: Callable[[str, int], list[str]]) -> None:
    first, second, third = neighbours("q", 3)
    for n, id in enumerate((first, second, third)):
        queue.enqueue(id=id, deadline=clock.now + n * SECOND)
    found = queue.explain(third)
    assert (found.code, found.ahead) == ("behind_others", 2)
    assert found.reason == "2 more urgent messages are ahead of it"
    assert queue.explain(second).reason == "1 more urgent message is ahead of it"


def test_what_is_more_urgent_on_other_shards_is_ahead_too(queue: Queue, clock: VirtualClock) -> None:
    for n in range(20):
        queue.enqueue(id=f"m{n}", deadline=clock.now + n * SECOND)
    assert queue.explain("m0").code == "next"
    for n in (1, 7, 19):
        found = queue.explain(f"m{n}")
        assert (found.code, found.ahead) == ("behind_others", n)


def test_what_is_as_urgent_on_other_shards_is_not_ahead(tw: Tickwheel, queue: Queue, clock: VirtualClock) -> None:
    for n in range(8):
        queue.enqueue(id=f"m{n}", deadline=clock.now)
    heads = [n for n in range(8) if queue.explain(f"m{n}").code == "next"]
    shards = {shard_of("q", f"m{n}".encode(), tw._core.shards) for n in range(8)}
    assert len(heads) == len(shards)


def test_its_value_is_held_by_a_running_message(exclusive: Queue, clock: VirtualClock) -> None:
    for n in range(4):
        exclusive.enqueue(id=f"m{n}", metadata={"of": "a"})
    exclusive.dequeue(worker="worker 7", lease=timedelta(minutes=5))
    found = exclusive.explain("m3", "a")
    assert (found.state, found.code, found.ahead_in_value) == ("pending", "behind_value", 2)
    assert (found.holder, found.worker, found.until) == ("m0", "worker 7", clock.now + timedelta(minutes=5))
    assert found.reason.startswith("message 'm0' of its exclusive value is held by worker 'worker 7' until ")
    assert found.reason.endswith(", and 2 others of its value go first")
    assert exclusive.explain("m1", "a").ahead_in_value == 0


def test_its_value_is_held_by_a_cancelled_message_until_its_worker_calls(exclusive: Queue, clock: VirtualClock) -> None:
    exclusive.enqueue(id="m0", metadata={"of": "a"})
    exclusive.dequeue(worker="worker 7")
    exclusive.enqueue(id="m1", metadata={"of": "a"})
    exclusive.cancel("m0", "a")
    found = exclusive.explain("m1", "a")
    assert (found.code, found.holder, found.until) == ("behind_value", "m0", clock.now + 30 * SECOND)


def test_others_of_its_free_value_go_first(exclusive: Queue) -> None:
    for n in range(3):
        exclusive.enqueue(id=f"m{n}", metadata={"of": "a"})
    found = exclusive.explain("m2", "a")
    assert (found.code, found.ahead_in_value, found.holder) == ("behind_value", 2, None)
    assert found.reason == "2 others of its value go first"
    assert exclusive.explain("m1", "a").reason == "1 other of its value goes first"
    assert exclusive.explain("m0", "a").code == "next"


def test_the_queue_is_blocked(queue: Queue) -> None:
    queue.enqueue(id="m")
    queue.block()
    assert queue.explain("m").code == "blocked"
    queue.unblock(enqueue=False)
    assert queue.explain("m").code == "next"


def test_it_is_running(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    queue.dequeue(worker="worker 7")
    found = queue.explain("m")
    assert (found.state, found.code, found.worker, found.until) == (
        "running",
        "running",
        "worker 7",
        clock.now + 30 * SECOND,
    )
    assert found.reason.startswith("worker 'worker 7' holds its lease until ")


def test_its_attempts_are_used_up(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m", max_attempts=1)
    queue.dequeue()[0].fail("boom")
    found = queue.explain("m")
    assert (found.state, found.code, found.until) == ("errored", "errored", clock.now + timedelta(days=7))
    assert found.reason.startswith("its 1 attempts are used up: boom; redrive it to try again; kept until ")


def test_it_was_cancelled_while_it_ran_and_holds_its_value(exclusive: Queue, clock: VirtualClock) -> None:
    for id in ("m", "next"):
        exclusive.enqueue(id=id, metadata={"of": "a"})
    [message] = exclusive.dequeue(worker="worker 7")
    lease_end = clock.now + 30 * SECOND
    change = exclusive.cancel("m", "a")
    assert (change.state, change.at) == ("cancelled", lease_end)
    assert exclusive.get("m", "a").until == lease_end

    found = exclusive.explain("m", "a")
    assert (found.state, found.code, found.until, found.worker) == ("cancelled", "cancelled", lease_end, "worker 7")
    end = f"{lease_end:%Y-%m-%d %H:%M:%S}.{lease_end.microsecond // 1000:03d} UTC"
    assert found.reason == (
        "it was cancelled while it ran: its exclusive value is held until worker 'worker 7', which gets LeaseLost,"
        f" calls again, or its lease ends at {end}; then the next of its value may run, and this one is kept"
        " for 0:10:00"
    )
    behind = exclusive.explain("next", "a")
    assert (behind.code, behind.holder, behind.until) == ("behind_value", "m", lease_end)
    assert behind.reason == (
        "message 'm' of its exclusive value was cancelled while it ran, and holds the value until worker 'worker 7'"
        f" calls again or its lease ends at {end}"
    )

    with pytest.raises(LeaseLost):
        message.complete()
    assert exclusive.explain("next", "a").code == "next"
    assert exclusive.explain("m", "a").reason.startswith("it was cancelled; kept until ")


def test_it_was_completed_or_cancelled(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="done")
    queue.dequeue()[0].complete()
    queue.enqueue(id="cancelled")
    queue.cancel("cancelled")
    for id, state in (("done", "completed"), ("cancelled", "cancelled")):
        found = queue.explain(id)
        assert (found.state, found.code, found.until) == (state, state, clock.now + timedelta(minutes=10))
        assert found.reason.startswith(f"it was {state}; kept until ")
