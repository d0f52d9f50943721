"""The statistics of a queue: counts, depth, forecast, lateness, and an iteration over its messages."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import InvalidArgument, Message, NewMessage, Queue, QueueNotFound, Tickwheel, limits
from tickwheel.testing import VirtualClock

pytestmark = [pytest.mark.integration, pytest.mark.queue(forecast=True)]

Bring = Callable[..., Message | None]
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
STATES = ["invisible", "pending", "running", "completed", "cancelled", "errored"]


def test_counts_has_every_state(queue: Queue, bring: Bring) -> None:
    assert queue.counts() == dict.fromkeys(STATES, 0)
    for state in ("completed", "cancelled", "errored", "running", "invisible", "pending"):
        bring(state, queue, id=state)
    assert queue.counts() == dict.fromkeys(STATES, 1)


def test_counts_are_of_one_queue(tw: Tickwheel) -> None:
    tw.queue("a").enqueue_many(NewMessage(id=f"m{n}") for n in range(20))
    tw.queue("b").enqueue(delay=SECOND)
    assert tw.queue("a").counts()["pending"] == 20
    assert tw.queue("b").counts() == dict.fromkeys(STATES, 0) | {"invisible": 1}


@pytest.mark.parametrize("call", ["counts", "lateness", "depth", "forecast", "config", "block"])
def test_a_queue_that_does_not_exist_is_named(tw: Tickwheel, call: str) -> None:
    with pytest.raises(QueueNotFound, match="no queue 'nowhere'"):
        getattr(tw.queue("nowhere"), call)()


def test_depth_counts_pending_messages_including_blocked_messages(tw: Tickwheel, clock: VirtualClock) -> None:
    queue = tw.create_queue("exclusive", exclusive_key="of")
    queue.enqueue_many(NewMessage(id=f"m{n}", metadata={"of": str(n % 5), "kind": str(n % 2)}) for n in range(50))
    queue.enqueue(id="later", delay=SECOND, metadata={"of": "0", "kind": "0"})
    assert queue.depth() == 50
    running = queue.dequeue(limit=5)
    assert len(running) == 5
    assert queue.depth() == 45
    odd = sum(message.metadata["kind"] == "1" for message in running)
    assert queue.depth({"kind": "1"}) == 25 - odd
    assert queue.depth({"kind": "1", "of": "1"}) == 5 - sum(m.metadata == {"of": "1", "kind": "1"} for m in running)
    assert queue.depth({"kind": "nothing"}) == 0


@pytest.mark.parametrize("round_minutes", [limits.FORECAST_ROUND, 60, 180])
def test_the_forecast_counts_the_messages_due_in_each_coming_minute(
    queue: Queue, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, round_minutes: int
) -> None:
    # The shards are read in one round, or in several.
    monkeypatch.setattr(limits, "FORECAST_ROUND", round_minutes)
    first = clock.now.replace(second=0, microsecond=0) + MINUTE
    clock.advance(first - clock.now)
    queue.enqueue_many(NewMessage(id=f"m{n}", delay=n * 10 * SECOND) for n in range(60))
    minutes = queue.forecast(minutes=12)
    assert [minute.start for minute in minutes] == [first + n * MINUTE for n in range(12)]
    # The first of the messages is Pending immediately.
    assert [minute.due for minute in minutes] == [5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 0, 0]
    assert len(queue.forecast()) == 60


def test_the_forecast_follows_every_transition_into_and_out_of_invisible(queue: Queue, clock: VirtualClock) -> None:
    clock.advance(clock.now.replace(second=0, microsecond=0) + MINUTE - clock.now)

    def due() -> list[int]:
        return [minute.due for minute in queue.forecast(minutes=5)]

    queue.enqueue(id="m", delay=2 * MINUTE)
    assert due() == [0, 0, 1, 0, 0]
    queue.reschedule("m", delay=3 * MINUTE)
    assert due() == [0, 0, 0, 1, 0]
    queue.reschedule("m", deadline=clock.now)
    assert due() == [0, 0, 0, 1, 0]
    queue.cancel("m")
    assert due() == [0, 0, 0, 0, 0]
    queue.enqueue(id="n")
    queue.dequeue()[0].fail(retry_in=MINUTE)
    assert due() == [0, 1, 0, 0, 0]
    clock.advance(MINUTE)
    assert due() == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("minutes", [0, -1, 1_441, 1.5, "60"])
def test_a_forecast_covers_1_to_1440_minutes(queue: Queue, minutes: Any) -> None:
    with pytest.raises(InvalidArgument, match="minutes must be a whole number from 1 to 1440"):
        queue.forecast(minutes)
    assert len(queue.forecast(1_440)) == 1_440


def test_forecast_of_a_queue_without_forecast_names_the_remedy(tw: Tickwheel) -> None:
    tw.create_queue("none")
    with pytest.raises(InvalidArgument, match="create it with forecast=True"):
        tw.queue("none").forecast()


def test_lateness_counts_the_delay_of_each_promotion(queue: Queue, clock: VirtualClock) -> None:
    assert (queue.lateness().promoted, queue.lateness().percentile(0.99)) == ({}, 0)
    for n, late in enumerate([0, 0, 0, 1, 3, 4, 1_000]):
        queue.enqueue(id=f"m{n}", delay=SECOND)
        # The event process runs late by this delay.
        clock.set(clock.now + SECOND + late * MS)
        clock.run_due()
    assert queue.lateness().promoted == {1: 3, 2: 1, 4: 1, 8: 1, 1024: 1}
    assert queue.lateness().percentile(0.5) == 1
    # Only the bucket of the maximum is known: 512 ms or more, but less than 1,024 ms.
    assert queue.lateness().percentile(1) == 1023


def test_a_message_that_did_not_wait_on_the_wheel_has_no_lateness(queue: Queue) -> None:
    queue.enqueue(id="m")
    queue.dequeue()
    assert queue.lateness().promoted == {}


def test_a_delivery_after_the_deadline_counts_as_a_missed_deadline(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="in time", deadline=clock.now)
    queue.enqueue(id="late", deadline=clock.now - 3 * MS)
    queue.enqueue(id="very late", deadline=timedelta(days=-1))
    queue.enqueue(id="no deadline")
    assert len(queue.dequeue(limit=10)) == 4
    lateness = queue.lateness()
    assert (lateness.deadlines, lateness.missed) == (3, {4: 1, 2**27: 1})


def test_deadlines_missed_by_the_same_time_are_all_counted(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue_many(NewMessage(deadline=clock.now - late * MS) for late in (3, 100) for _ in range(20))
    assert len(queue.dequeue(limit=40)) == 40
    lateness = queue.lateness()
    assert (lateness.deadlines, lateness.missed) == (40, {4: 20, 128: 20})


def test_messages_iterates_over_all_messages_of_a_queue(tw: Tickwheel, queue: Queue, bring: Bring) -> None:
    tw.queue("other").enqueue(id="other")
    for state in ("completed", "cancelled", "errored", "running", "invisible", "pending"):
        bring(state, queue, id=state)
    assert sorted((view.id, view.state) for view in queue.messages()) == sorted((state, state) for state in STATES)
    assert [view.id for view in queue.messages("running")] == ["running"]
    with pytest.raises(InvalidArgument, match="state must be one of invisible, pending"):
        list(queue.messages("late"))


def test_messages_reads_large_payloads_and_many_pages(queue: Queue) -> None:
    queue.enqueue_many(NewMessage(bytes([n % 256]) * (n % 3 * 1_000), id=f"m{n}") for n in range(2_500))
    payloads = {view.id: view.payload for view in queue.messages()}
    assert payloads == {f"m{n}": bytes([n % 256]) * (n % 3 * 1_000) for n in range(2_500)}
