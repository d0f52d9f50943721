"""Explain reports why a message is not running, and when it will run."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tickwheel import LeaseLost, Queue, Tickwheel
from tickwheel.storage.fence import pack_fence
from tickwheel.storage.keys import shard_key
from tickwheel.storage.sharding import shard_of
from tickwheel.testing import VirtualClock

pytestmark = [pytest.mark.integration, pytest.mark.queue(max_attempts=2)]

SECOND = timedelta(seconds=1)


def text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d} UTC"


@pytest.fixture
def exclusive(tw: Tickwheel) -> Queue:
    return tw.create_queue("exclusive", exclusive_key="of")


def test_explain_reports_a_message_that_is_not_due(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m", delay=timedelta(hours=1))
    answer = queue.explain("m")
    assert (answer.id, answer.state, answer.code, answer.until) == (
        "m",
        "invisible",
        "invisible",
        clock.now + 3600 * SECOND,
    )
    assert answer.reason == f"it is not due until {text(clock.now + 3600 * SECOND)}"


def test_explain_reports_a_back_off(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    queue.dequeue()[0].fail(retry_in=SECOND)
    answer = queue.explain("m")
    assert (answer.code, answer.until) == ("invisible", clock.now + SECOND)
    assert answer.reason.startswith("its next attempt waits for its back-off until ")


def test_explain_reports_no_back_off_for_a_failed_message_that_was_rescheduled(
    queue: Queue, clock: VirtualClock
) -> None:
    queue.enqueue(id="m")
    queue.dequeue()[0].fail(retry_in=SECOND)
    queue.reschedule("m", deadline=clock.now)
    assert queue.explain("m").reason.startswith("its next attempt waits for its back-off until ")
    queue.reschedule("m", delay=timedelta(hours=1))
    assert queue.explain("m").reason == f"it is not due until {text(clock.now + 3600 * SECOND)}"


def test_explain_reports_a_due_message_that_was_not_promoted(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m", delay=SECOND)
    due = clock.now + SECOND
    clock.set(due)
    answer = queue.explain("m")
    assert (answer.state, answer.code, answer.until) == ("invisible", "invisible", due)
    assert answer.reason == (
        f"it has been due since {text(due)}, and no event process has promoted it yet (is one running?)"
    )
    clock.run_due()
    assert queue.explain("m").code == "next"


def test_explain_names_the_clock_guard_if_it_held(
    tw: Tickwheel, queue: Queue, clock: VirtualClock, server: Any
) -> None:
    queue.enqueue(id="m", delay=SECOND)
    clock.set(clock.now + SECOND)
    keys = [shard_key(tw._context.namespace, shard, "clock") for shard in range(tw._context.shards)]
    for key in keys:
        server.hset(key, mapping={"fence": pack_fence(1, 1), "held": b"3001" + pack_fence(1, 1)})
    assert "no event process has promoted it yet (the clock guard of the last one held" in queue.explain("m").reason
    # An event process of an earlier version claims the shard. It does not know the field.
    for key in keys:
        server.hset(key, "fence", pack_fence(2, 1))
    assert "no event process has promoted it yet (is one running?)" in queue.explain("m").reason


def test_explain_reports_an_ended_back_off_without_promotion(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    queue.dequeue()[0].fail(retry_in=SECOND)
    end = clock.now + SECOND
    clock.set(end + SECOND)
    assert queue.explain("m").reason == (
        f"its back-off ended at {text(end)}, and no event process has promoted it yet (is one running?)"
    )


def test_explain_reports_an_ended_lease_that_was_not_expired(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    queue.dequeue(worker="worker 7")
    end = clock.now + 30 * SECOND
    clock.set(end + SECOND)
    answer = queue.explain("m")
    assert (answer.state, answer.code, answer.until) == ("running", "running", end)
    assert answer.reason == (
        f"the lease of worker 'worker 7' ended at {text(end)} (attempt 1), and no event process has processed its end"
        " yet (is one running?)"
    )
    clock.run_due()
    assert queue.explain("m").code == "next"


def test_explain_reports_an_ended_lease_of_the_holder_of_the_value_that_was_not_expired(
    exclusive: Queue, clock: VirtualClock
) -> None:
    for n in range(3):
        exclusive.enqueue(id=f"m{n}", metadata={"of": "a"})
    exclusive.dequeue(worker="worker 7")
    end = clock.now + 30 * SECOND
    clock.set(end)
    answer = exclusive.explain("m2", "a")
    assert (answer.code, answer.holder, answer.ahead_in_value, answer.until) == ("behind_value", "m0", 1, end)
    assert answer.reason == (
        f"message 'm0' holds its exclusive value: the lease of worker 'worker 7' ended at {text(end)}, and no event"
        " process has processed its end yet (is one running?), and 1 other message of its exclusive value comes first"
    )
    exclusive.cancel("m0", "a")
    sees = (
        "calls again (and gets LeaseLost), or an event process (is one running?) processes the lease, which ended at"
        f" {text(end)}"
    )
    for id in ("m0", "m1"):
        assert sees in exclusive.explain(id, "a").reason


def test_explain_reports_an_ended_retention_without_removal(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="done")
    queue.dequeue()[0].complete()
    end = clock.now + timedelta(minutes=10)
    clock.set(end)
    assert queue.explain("done").reason == (
        f"it was completed; its retention ended at {text(end)}, and no event process has removed it yet"
        " (is one running?)"
    )


def test_explain_reports_the_next_message(queue: Queue) -> None:
    queue.enqueue(id="m")
    answer = queue.explain("m")
    assert (answer.state, answer.code, answer.ahead, answer.until) == ("pending", "next", 0, None)


def test_explain_counts_more_urgent_messages(
    queue: Queue, clock: VirtualClock, neighbours: Callable[[str, int], list[str]]
) -> None:
    first, second, third = neighbours("q", 3)
    for n, id in enumerate((first, second, third)):
        queue.enqueue(id=id, deadline=clock.now + n * SECOND)
    answer = queue.explain(third)
    assert (answer.code, answer.ahead) == ("behind_others", 2)
    assert answer.reason == "2 more urgent messages are ahead of it"
    assert queue.explain(second).reason == "1 more urgent message is ahead of it"


def test_explain_counts_more_urgent_messages_of_other_shards(queue: Queue, clock: VirtualClock) -> None:
    for n in range(20):
        queue.enqueue(id=f"m{n}", deadline=clock.now + n * SECOND)
    assert queue.explain("m0").code == "next"
    for n in (1, 7, 19):
        answer = queue.explain(f"m{n}")
        assert (answer.code, answer.ahead) == ("behind_others", n)


def test_explain_does_not_count_equally_urgent_messages_of_other_shards(
    tw: Tickwheel, queue: Queue, clock: VirtualClock
) -> None:
    for n in range(8):
        queue.enqueue(id=f"m{n}", deadline=clock.now)
    heads = [n for n in range(8) if queue.explain(f"m{n}").code == "next"]
    shards = {shard_of("q", f"m{n}".encode(), tw._context.shards) for n in range(8)}
    assert len(heads) == len(shards)


def test_explain_names_the_running_message_that_holds_the_value(exclusive: Queue, clock: VirtualClock) -> None:
    for n in range(4):
        exclusive.enqueue(id=f"m{n}", metadata={"of": "a"})
    exclusive.dequeue(worker="worker 7", lease=timedelta(minutes=5))
    answer = exclusive.explain("m3", "a")
    assert (answer.state, answer.code, answer.ahead_in_value) == ("pending", "behind_value", 2)
    assert (answer.holder, answer.worker, answer.until) == ("m0", "worker 7", clock.now + timedelta(minutes=5))
    assert answer.reason.startswith("message 'm0' of its exclusive value is held by worker 'worker 7' until ")
    assert answer.reason.endswith(", and 2 other messages of its exclusive value come first")
    assert exclusive.explain("m1", "a").ahead_in_value == 0


def test_explain_names_the_cancelled_message_that_holds_the_value_until_its_worker_calls(
    exclusive: Queue, clock: VirtualClock
) -> None:
    exclusive.enqueue(id="m0", metadata={"of": "a"})
    exclusive.dequeue(worker="worker 7")
    exclusive.enqueue(id="m1", metadata={"of": "a"})
    exclusive.cancel("m0", "a")
    answer = exclusive.explain("m1", "a")
    assert (answer.code, answer.holder, answer.until) == ("behind_value", "m0", clock.now + 30 * SECOND)


def test_explain_counts_earlier_messages_of_the_free_value(exclusive: Queue) -> None:
    for n in range(3):
        exclusive.enqueue(id=f"m{n}", metadata={"of": "a"})
    answer = exclusive.explain("m2", "a")
    assert (answer.code, answer.ahead_in_value, answer.holder) == ("behind_value", 2, None)
    assert answer.reason == "2 other messages of its exclusive value come first"
    assert exclusive.explain("m1", "a").reason == "1 other message of its exclusive value comes first"
    assert exclusive.explain("m0", "a").code == "next"


def test_explain_reports_a_blocked_queue(queue: Queue) -> None:
    queue.enqueue(id="m")
    queue.block()
    assert queue.explain("m").code == "blocked"
    queue.unblock(enqueue=False)
    assert queue.explain("m").code == "next"


def test_explain_reports_a_running_message(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    queue.dequeue(worker="worker 7")
    answer = queue.explain("m")
    assert (answer.state, answer.code, answer.worker, answer.until) == (
        "running",
        "running",
        "worker 7",
        clock.now + 30 * SECOND,
    )
    assert answer.reason.startswith("worker 'worker 7' holds its lease until ")


def test_explain_reports_the_attempts_of_an_errored_message(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m", max_attempts=1)
    queue.dequeue()[0].fail("boom")
    answer = queue.explain("m")
    assert (answer.state, answer.code, answer.until) == ("errored", "errored", clock.now + timedelta(days=7))
    assert answer.reason.startswith("it failed after 1 attempt: boom; redrive it to try again; kept until ")


def test_explain_reports_a_message_cancelled_while_running_that_holds_its_value(
    exclusive: Queue, clock: VirtualClock
) -> None:
    for id in ("m", "next"):
        exclusive.enqueue(id=id, metadata={"of": "a"})
    [message] = exclusive.dequeue(worker="worker 7")
    lease_end = clock.now + 30 * SECOND
    change = exclusive.cancel("m", "a")
    assert (change.state, change.at) == ("cancelled", lease_end)
    assert exclusive.get("m", "a").until == lease_end

    answer = exclusive.explain("m", "a")
    assert (answer.state, answer.code, answer.until, answer.worker) == ("cancelled", "cancelled", lease_end, "worker 7")
    end = text(lease_end)
    assert answer.reason == (
        "it was cancelled while it ran: its exclusive value is held until worker 'worker 7' calls again"
        f" (and gets LeaseLost), or the lease ends at {end}; then the next message of the value may run, and this"
        " message is kept for 10 min"
    )
    behind = exclusive.explain("next", "a")
    assert (behind.code, behind.holder, behind.until) == ("behind_value", "m", lease_end)
    assert behind.reason == (
        "message 'm' of its exclusive value was cancelled while it ran, and holds the value until worker 'worker 7'"
        f" calls again (and gets LeaseLost), or the lease ends at {end}"
    )

    with pytest.raises(LeaseLost):
        message.complete()
    assert exclusive.explain("next", "a").code == "next"
    assert exclusive.explain("m", "a").reason.startswith("it was cancelled; kept until ")


def test_explain_reports_a_completed_or_cancelled_message(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="done")
    queue.dequeue()[0].complete()
    queue.enqueue(id="cancelled")
    queue.cancel("cancelled")
    for id, state in (("done", "completed"), ("cancelled", "cancelled")):
        answer = queue.explain(id)
        assert (answer.state, answer.code, answer.until) == (state, state, clock.now + timedelta(minutes=10))
        assert answer.reason.startswith(f"it was {state}; kept until ")
