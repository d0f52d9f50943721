"""The table of states: each transition with its new version and its event."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.state_table import all_transitions
from tickwheel import Message, MessageNotFound, NewMessage, Queue, Tickwheel
from tickwheel.model.validation import from_ms
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition
from tickwheel.testing import VirtualClock

pytestmark = [
    pytest.mark.integration,
    pytest.mark.queue(lease=timedelta(seconds=10), max_attempts=2, backoff=timedelta(seconds=5)),
]

Bring = Callable[..., Message | None]
History = Callable[[str], list[OutboxTransition]]
MS = timedelta(milliseconds=1)


def last(history: History, id: str = "m", events: int | None = None) -> tuple[str | None, str | None, int, int]:
    """Return source state, target state, version and attempt of the last of the first ``events`` transitions."""
    newest = history(id)[:events][-1]
    before, after = (None if state is None else State(state).label for state in (newest.from_state, newest.to_state))
    return before, after, newest.version, newest.attempt


def test_a_message_whose_due_is_in_the_future_is_invisible(queue: Queue, clock: VirtualClock, history: History) -> None:
    result = queue.enqueue(id="m", delay=MS)
    assert (result.state, result.created) == ("invisible", True)
    assert queue.get("m").until == clock.now + MS
    assert last(history) == (None, "invisible", 1, 0)


@pytest.mark.parametrize("due", ["nothing", "no delay", "due now", "due long ago"])
def test_a_message_whose_due_is_reached_is_pending(
    queue: Queue, clock: VirtualClock, history: History, due: str
) -> None:
    dues: dict[str, dict[str, Any]] = {
        "nothing": {},
        "no delay": {"delay": timedelta(0)},
        "due now": {"due": clock.now},
        "due long ago": {"due": datetime.fromisoformat("1970-01-01T00:00:00Z")},
    }
    assert queue.enqueue(id="m", **dues[due]).state == "pending"
    assert last(history) == (None, "pending", 1, 0)


def test_the_wheel_promotes_a_message_at_its_due_time_and_not_a_millisecond_earlier(
    queue: Queue, clock: VirtualClock, history: History
) -> None:
    queue.enqueue(id="m", delay=timedelta(hours=5))
    clock.advance(timedelta(hours=5) - MS)
    assert queue.get("m").state == "invisible"
    assert queue.dequeue() == []
    clock.advance(MS)
    assert queue.get("m").state == "pending"
    assert last(history) == ("invisible", "pending", 2, 0)
    assert history("m")[-1].lateness_ms == 0


def test_dequeue_makes_a_message_running_under_a_new_token(queue: Queue, clock: VirtualClock, history: History) -> None:
    queue.enqueue(b"payload", id="m", metadata={"a": "b"})
    [message] = queue.dequeue(worker="worker 1")
    assert (message.id, message.payload, message.metadata) == ("m", b"payload", {"a": "b"})
    assert (message.attempt, message.version, message.lease_until) == (1, 2, clock.now + timedelta(seconds=10))
    assert len(message.token) == 16
    assert queue.get("m").state == "running"
    assert last(history) == ("pending", "running", 2, 1)
    assert history("m")[-1].worker == "worker 1"
    message.fail(retry_in=timedelta(0))
    [again] = queue.dequeue()
    assert (again.attempt, again.version) == (2, 4)
    assert again.token != message.token


def test_complete_makes_a_running_message_completed(
    queue: Queue, clock: VirtualClock, bring: Bring, history: History
) -> None:
    bring("completed", queue)
    view = queue.get("m")
    assert (view.state, view.payload, view.metadata) == ("completed", b"", {})
    assert view.until == clock.now + timedelta(minutes=10)
    assert last(history) == ("running", "completed", 3, 1)


def test_fail_with_attempts_left_makes_a_message_invisible_for_the_back_off(
    queue: Queue, clock: VirtualClock, history: History
) -> None:
    queue.enqueue(id="m")
    [message] = queue.dequeue()
    assert message.fail("boom", retry_in=timedelta(seconds=3)) == "invisible"
    view = queue.get("m")
    assert (view.until, view.error) == (clock.now + timedelta(seconds=3), "boom")
    assert last(history) == ("running", "invisible", 3, 1)
    clock.advance(timedelta(seconds=3) - MS)
    assert queue.dequeue() == []
    clock.advance(MS)
    assert [message.attempt for message in queue.dequeue()] == [2]


def test_fail_with_attempts_left_and_no_back_off_makes_a_message_pending(queue: Queue, history: History) -> None:
    queue.enqueue(id="m")
    [message] = queue.dequeue()
    assert message.fail(retry_in=timedelta(0)) == "pending"
    assert last(history) == ("running", "pending", 3, 1)


def test_fail_with_the_attempts_used_up_makes_a_message_errored(
    queue: Queue, clock: VirtualClock, history: History
) -> None:
    queue.enqueue(b"payload", id="m", max_attempts=1, metadata={"a": "b"})
    [message] = queue.dequeue()
    assert message.fail("boom", retry_in=timedelta(seconds=3)) == "errored"
    view = queue.get("m")
    assert (view.state, view.error, view.payload, view.metadata) == ("errored", "boom", b"payload", {"a": "b"})
    assert view.until == clock.now + timedelta(days=7)
    assert last(history) == ("running", "errored", 3, 1)


def test_the_end_of_a_lease_with_attempts_left_makes_a_message_pending(
    queue: Queue, clock: VirtualClock, bring: Bring, history: History
) -> None:
    bring("running", queue)
    clock.advance(timedelta(seconds=10) - MS)
    assert queue.get("m").state == "running"
    clock.advance(MS)
    assert queue.get("m").state == "pending"
    assert last(history) == ("running", "pending", 3, 1)


def test_the_end_of_a_lease_with_the_attempts_used_up_makes_a_message_errored(
    queue: Queue, clock: VirtualClock, history: History
) -> None:
    queue.enqueue(id="m", max_attempts=1)
    queue.dequeue()
    clock.advance(timedelta(seconds=10))
    view = queue.get("m")
    assert (view.state, view.error) == ("errored", "the lease of attempt 1 of 1 ended")
    assert last(history) == ("running", "errored", 3, 1)


def test_extend_keeps_the_message_running_without_a_new_version_or_event(
    queue: Queue, clock: VirtualClock, bring: Bring, history: History
) -> None:
    message = bring("running", queue)
    assert message is not None
    before = history("m")
    assert message.extend(timedelta(minutes=5)) == clock.now + timedelta(minutes=5)
    view = queue.get("m")
    assert (view.state, view.version, view.until) == ("running", 2, clock.now + timedelta(minutes=5))
    assert history("m") == before


@pytest.mark.parametrize("state", ["invisible", "pending", "running"])
def test_cancel_makes_a_message_cancelled(
    queue: Queue, clock: VirtualClock, bring: Bring, history: History, state: str
) -> None:
    attempt = 0 if bring(state, queue) is None else 1
    version = queue.get("m").version
    change = queue.cancel("m")
    assert (change.state, change.changed, change.version) == ("cancelled", True, version + 1)
    view = queue.get("m")
    assert (view.state, view.payload) == ("cancelled", b"")
    assert view.until == clock.now + timedelta(minutes=10)
    assert last(history) == (state, "cancelled", version + 1, attempt)
    clock.advance(timedelta(hours=2))
    assert queue.dequeue() == []


@pytest.mark.parametrize("state", ["invisible", "pending"])
@pytest.mark.parametrize(("delay", "becomes"), [(timedelta(0), "pending"), (timedelta(hours=3), "invisible")])
def test_reschedule_makes_a_message_invisible_or_pending(
    queue: Queue,
    clock: VirtualClock,
    bring: Bring,
    history: History,
    state: str,
    delay: timedelta,
    becomes: str,
) -> None:
    bring(state, queue)
    change = queue.reschedule("m", delay=delay)
    assert (change.state, change.changed, change.version, change.at) == (becomes, True, 2, clock.now + delay)
    assert queue.get("m").due == clock.now + delay
    assert last(history) == (state, becomes, 2, 0)
    clock.advance(timedelta(hours=3))
    assert [message.id for message in queue.dequeue()] == ["m"]


def test_cancel_many_cancels_all_and_reports_the_messages_that_it_changed(queue: Queue) -> None:
    ids = [f"m{n}" for n in range(600)]
    queue.enqueue_many(NewMessage(id=id) for id in ids)
    queue.cancel("m7")
    changes = queue.cancel_many([*ids, "m9"])
    assert [change.id for change in changes] == [*ids, "m9"]
    assert [n for n, change in enumerate(changes) if not change.changed] == [7, 600]
    assert {(change.state, change.version) for change in changes} == {("cancelled", 2)}
    assert queue.counts()["cancelled"] == 600


def test_cancel_many_cancels_the_others_if_one_is_refused(queue: Queue) -> None:
    queue.enqueue_many(NewMessage(id=id) for id in ("a", "b"))
    with pytest.raises(MessageNotFound, match="'no'"):
        queue.cancel_many(["a", "no", "b"])
    assert queue.counts()["cancelled"] == 2


def test_redrive_makes_an_errored_message_pending_with_attempts_from_zero(
    queue: Queue, clock: VirtualClock, bring: Bring, history: History
) -> None:
    bring("errored", queue)
    change = queue.redrive("m")
    assert (change.state, change.changed, change.version, change.at) == ("pending", True, 4, clock.now)
    assert last(history) == ("errored", "pending", 4, 0)
    [message] = queue.dequeue()
    assert (message.attempt, message.payload) == (1, b"payload")


@pytest.mark.parametrize(
    ("state", "retention"),
    [("completed", timedelta(minutes=10)), ("cancelled", timedelta(minutes=10)), ("errored", timedelta(days=7))],
)
def test_a_message_is_deleted_after_its_retention(
    queue: Queue, clock: VirtualClock, bring: Bring, history: History, state: str, retention: timedelta
) -> None:
    bring(state, queue)
    version = queue.get("m").version
    clock.advance(retention - MS)
    assert queue.get("m").state == state
    clock.advance(MS)
    assert sum(queue.counts().values()) == 0
    before, after, gone_version, _ = last(history)
    assert (before, after, gone_version) == (state, None, version + 1)


CALLS: dict[tuple[str, str | None], Callable[[Queue, VirtualClock, Any], object]] = {
    ("enqueue", "invisible"): lambda queue, clock, message: queue.enqueue(id="m", delay=MS),
    ("enqueue", "pending"): lambda queue, clock, message: queue.enqueue(id="m"),
    ("promote", "pending"): lambda queue, clock, message: clock.advance(timedelta(hours=1)),
    ("dequeue", "running"): lambda queue, clock, message: queue.dequeue(),
    ("complete", "completed"): lambda queue, clock, message: message.complete(),
    ("fail", "invisible"): lambda queue, clock, message: message.fail(retry_in=MS),
    ("fail", "pending"): lambda queue, clock, message: message.fail(retry_in=timedelta(0)),
    ("fail", "errored"): lambda queue, clock, message: message.fail(final=True),
    ("release", "pending"): lambda queue, clock, message: message.release(),
    ("expire", "pending"): lambda queue, clock, message: clock.advance(timedelta(seconds=10)),
    ("expire", "errored"): lambda queue, clock, message: clock.advance(timedelta(seconds=10)),
    ("extend", "running"): lambda queue, clock, message: message.extend(timedelta(minutes=1)),
    ("cancel", "cancelled"): lambda queue, clock, message: queue.cancel("m"),
    ("reschedule", "invisible"): lambda queue, clock, message: queue.reschedule("m", delay=MS),
    ("reschedule", "pending"): lambda queue, clock, message: queue.reschedule("m", delay=timedelta(0)),
    ("redrive", "pending"): lambda queue, clock, message: queue.redrive("m"),
    ("purge", "cancelled"): lambda queue, clock, message: queue.purge(),
    ("purge", None): lambda queue, clock, message: queue.purge(),
    ("retire", None): lambda queue, clock, message: clock.advance(timedelta(days=7)),
}


@pytest.mark.parametrize(("before", "script", "after"), sorted(all_transitions(), key=str))
def test_each_transition_of_the_table_happens(
    tw: Tickwheel,
    queue: Queue,
    clock: VirtualClock,
    bring: Bring,
    history: History,
    before: str | None,
    script: str,
    after: str | None,
) -> None:
    one_attempt = {"max_attempts": 1} if (script, after) == ("expire", "errored") else {}
    message = bring(before, queue, **one_attempt) if before else None
    events = len(history("m"))
    if (before, script) == ("running", "purge"):
        tw.delete_queue("q", purge=True)
    else:
        CALLS[script, after](queue, clock, message)
    if script == "extend":
        assert (queue.get("m").state, len(history("m"))) == ("running", events)
    elif (script, after) == ("purge", "cancelled"):
        assert [last(history, events=n)[:2] for n in (events + 1, events + 2)] == [(before, after), (after, None)]
    else:
        assert (*last(history)[:2], len(history("m"))) == (before, after, events + 1)


def test_enqueue_and_reschedule_events_contain_the_whole_message_and_other_events_do_not(
    queue: Queue, clock: VirtualClock, history: History
) -> None:
    deadline = clock.now + timedelta(days=1)
    queue.enqueue(id="m", delay=timedelta(hours=1), deadline=deadline, metadata={"region": "eu"})
    queue.reschedule("m", delay=timedelta(0))
    queue.dequeue()
    enqueued, rescheduled, dequeued = history("m")
    for full in (enqueued, rescheduled):
        assert full.metadata == {"region": "eu"}
        assert full.deadline_ms is not None
        assert from_ms(full.deadline_ms) == deadline
    assert (dequeued.metadata, dequeued.due_ms, dequeued.deadline_ms) == (None, None, None)
    assert {event.incarnation for event in (enqueued, rescheduled, dequeued)} == {enqueued.incarnation}


@pytest.mark.tickwheel(history="off")
def test_without_history_no_events_are_stored_and_all_other_data_is_equal(
    queue: Queue, clock: VirtualClock, history: History
) -> None:
    queue.enqueue(id="m", delay=MS)
    clock.advance(MS)
    [message] = queue.dequeue()
    message.complete()
    assert queue.counts()["completed"] == 1
    assert history("m") == []
