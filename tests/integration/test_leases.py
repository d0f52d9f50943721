"""Leases: one owner at a time, late calls succeed until another worker has the message, deliveries are limited."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import InvalidArgument, LeaseLost, Message, MessageNotFound, NewMessage, Queue, Tickwheel
from tickwheel.driver.commands import Command
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.storage.scripts import Call
from tickwheel.testing import VirtualClock

SECOND = timedelta(seconds=1)
pytestmark = [
    pytest.mark.integration,
    pytest.mark.queue(lease=30 * SECOND, max_attempts=3, backoff=SECOND, backoff_max=4 * SECOND),
]

Bring = Callable[..., Message | None]
Dump = Callable[[], dict[str, Any]]
MS = timedelta(milliseconds=1)


def take(queue: Queue, **options: Any) -> Message:
    [message] = queue.dequeue(**options)
    return message


def test_the_lease_of_a_call_precedes_that_of_the_message_and_that_of_the_queue(
    queue: Queue, clock: VirtualClock
) -> None:
    queue.enqueue(id="a")
    assert take(queue).lease_until == clock.now + 30 * SECOND
    queue.enqueue(id="b", lease=10 * SECOND)
    assert take(queue).lease_until == clock.now + 10 * SECOND
    queue.enqueue(id="c", lease=10 * SECOND)
    assert take(queue, lease=20 * SECOND).lease_until == clock.now + 20 * SECOND


@pytest.mark.parametrize("lease", [SECOND - MS, timedelta(hours=12) + MS, timedelta(0), -SECOND])
def test_a_lease_lasts_from_one_second_to_twelve_hours(queue: Queue, lease: timedelta) -> None:
    for call in (lambda: queue.enqueue(lease=lease), lambda: queue.dequeue(lease=lease)):
        with pytest.raises(InvalidArgument, match=r"lease must be from 1 s to 12 hours"):
            call()


@pytest.mark.parametrize("lease", [SECOND, timedelta(hours=12)])
def test_the_shortest_and_the_longest_lease_end_on_time(queue: Queue, clock: VirtualClock, lease: timedelta) -> None:
    queue.enqueue(id="m")
    take(queue, lease=lease)
    clock.advance(lease - MS)
    assert queue.get("m").state == "running"
    clock.advance(MS)
    assert queue.get("m").state == "pending"


def test_a_message_can_be_completed_after_its_lease_has_ended_until_it_is_expired(
    queue: Queue, clock: VirtualClock
) -> None:
    queue.enqueue(id="m")
    message = take(queue)
    # No event process runs, so the lease has not been ended.
    clock.set(clock.now + timedelta(hours=1))
    message.complete()
    clock.run_due()
    assert queue.get("m").state == "completed"


@pytest.mark.parametrize("late", ["fail", "extend"])
def test_a_message_can_be_failed_and_extended_after_its_lease_has_ended_until_it_is_expired(
    queue: Queue, clock: VirtualClock, late: str
) -> None:
    queue.enqueue(id="m")
    message = take(queue)
    clock.set(clock.now + timedelta(hours=1))
    if late == "fail":
        assert message.fail(retry_in=timedelta(0)) == "pending"
    else:
        assert message.extend(SECOND) == clock.now + SECOND
        clock.run_due()
        assert queue.get("m").state == "running"


def test_completing_an_expired_message_is_refused(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    message = take(queue)
    clock.advance(30 * SECOND)
    with pytest.raises(LeaseLost):
        message.complete()
    assert take(queue).attempt == 2


def test_completing_twice_completes_once(queue: Queue, dump: Dump) -> None:
    queue.enqueue(id="m")
    message = take(queue)
    message.complete()
    before = dump()
    message.complete()
    queue.complete_many([message, message])
    assert dump() == before


def test_complete_many_completes_all_held_messages_and_names_the_others(queue: Queue, clock: VirtualClock) -> None:
    for n in range(10):
        queue.enqueue(id=f"m{n}")
    messages = queue.dequeue(limit=10)
    lost = [message for message in messages if message.id in ("m3", "m7")]
    for message in lost:
        queue.cancel(message.id)
    with pytest.raises(LeaseLost, match=r"m3|m7") as refused:
        queue.complete_many(messages)
    assert sorted(message.id for message in refused.value.lost) == ["m3", "m7"]
    assert queue.counts()["completed"] == 8


def test_extend_many_extends_all_held_messages_and_names_the_others(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(200))
    messages = queue.dequeue(limit=200)
    lost = messages[::50]
    queue.complete_many(lost)
    clock.advance(20 * SECOND)
    with pytest.raises(LeaseLost) as refused:
        queue.extend_many(messages, 30 * SECOND)
    assert {message.id for message in refused.value.lost} == {message.id for message in lost}
    until = clock.now + 30 * SECOND
    assert {message.lease_until for message in messages if message not in lost} == {until}
    assert {queue.get(message.id).until for message in messages[1:50]} == {until}
    queue.extend_many([], SECOND)


@pytest.mark.parametrize("messages", ["m", None, ["m"], [None], 3])
def test_a_message_that_was_not_dequeued_cannot_be_extended(queue: Queue, messages: Any) -> None:
    with pytest.raises(InvalidArgument, match="extend_many takes"):
        queue.extend_many(messages, SECOND)


def test_a_message_reports_the_length_of_its_lease_by_the_clock_of_the_shard(queue: Queue) -> None:
    # The clock of the tests differs from the host's.
    queue.enqueue(id="a")
    assert take(queue)._lease_ms == 30_000
    queue.enqueue(id="b", lease=10 * SECOND)
    assert take(queue)._lease_ms == 10_000
    queue.enqueue(id="c")
    assert take(queue, lease=20 * SECOND, request_id="caller:1")._lease_ms == 20_000


def test_extending_moves_the_end_of_the_lease(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    message = take(queue)
    clock.advance(20 * SECOND)
    assert message.extend(30 * SECOND) == message.lease_until == clock.now + 30 * SECOND
    clock.advance(30 * SECOND - MS)
    assert queue.get("m").state == "running"
    clock.advance(MS)
    assert queue.get("m").state == "pending"


def test_extending_never_shortens_a_lease(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    message = take(queue)
    assert message.extend(SECOND) == clock.now + 30 * SECOND


def test_a_repeatedly_extended_message_is_never_delivered_twice(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    message = take(queue)
    for _ in range(200):
        clock.advance(20 * SECOND)
        assert queue.dequeue() == []
        message.extend(30 * SECOND)
    message.complete()
    assert queue.get("m").attempt == 1


def test_another_process_resumes_a_lease_by_its_token(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(b"payload", id="m", metadata={"a": "b"})
    message = take(queue)
    elsewhere = queue.leased("m", message.token)
    assert (elsewhere.payload, elsewhere.metadata, elsewhere.attempt) == (b"payload", {"a": "b"}, 1)
    elsewhere.complete()
    assert queue.get("m").state == "completed"
    with pytest.raises(LeaseLost):
        queue.leased("m", bytes(16))


def test_failed_and_expired_deliveries_count_towards_the_limit_of_attempts(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    attempts = []
    for how in ("fail", "expire", "fail"):
        message = take(queue)
        attempts.append(message.attempt)
        if how == "fail":
            message.fail("boom", retry_in=timedelta(0))
        else:
            clock.advance(30 * SECOND)
    assert attempts == [1, 2, 3]
    assert queue.get("m").state == "errored"
    clock.advance(timedelta(days=6))
    assert queue.dequeue() == []


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_the_limit_of_attempts_of_a_message_precedes_that_of_the_queue(
    queue: Queue, clock: VirtualClock, attempts: int
) -> None:
    queue.enqueue(id="m", max_attempts=attempts)
    for _ in range(attempts):
        take(queue).fail(retry_in=timedelta(0))
    assert queue.get("m").state == "errored"


def test_cancelling_a_running_message_ends_its_deliveries(queue: Queue, bring: Bring) -> None:
    bring("running", queue)
    queue.cancel("m")
    assert queue.get("m").attempt == 1
    assert queue.dequeue() == []


def test_a_redriven_message_has_all_its_attempts_again(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    for attempt in (1, 2, 3):
        message = take(queue)
        assert message.attempt == attempt
        message.fail(f"boom {attempt}", retry_in=timedelta(0))
    assert queue.get("m").error == "boom 3"
    queue.redrive("m")
    for attempt in (1, 2, 3):
        message = take(queue)
        assert message.attempt == attempt
        message.fail(retry_in=timedelta(0))
    assert queue.get("m").state == "errored"


def test_a_redriven_message_is_not_retired_by_the_timer_of_its_error(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m", max_attempts=1)
    take(queue).fail()
    clock.advance(timedelta(days=6))
    queue.redrive("m")
    clock.advance(timedelta(days=30))
    assert queue.get("m").state == "pending"


def test_the_lease_of_a_redriven_message_ends_on_time(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m", max_attempts=1)
    take(queue).fail("boom")
    # The wait is long enough to file the timers of the error.
    clock.advance(5 * SECOND)
    queue.redrive("m")
    take(queue)
    clock.advance(30 * SECOND - MS)
    assert queue.get("m").state == "running"
    clock.advance(MS)
    assert queue.get("m").state == "errored"


def test_the_back_off_doubles_up_to_its_limit_with_equal_jitter(tw: Tickwheel, clock: VirtualClock) -> None:
    queue = tw.create_queue("retry", max_attempts=1000, backoff=SECOND, backoff_max=8 * SECOND)
    queue.enqueue(id="m")
    waits: dict[int, list[timedelta]] = {}
    for _ in range(40):
        for attempt in range(1, 7):
            message = take(queue)
            assert message.fail() == "invisible"
            until = queue.get("m").until
            assert until is not None
            waits.setdefault(attempt, []).append(until - clock.now)
            clock.advance(until - clock.now)
        queue.cancel("m")
        clock.advance(timedelta(minutes=10))
        queue.enqueue(id="m")
    for attempt, ceiling in enumerate((1, 2, 4, 8, 8, 8), start=1):
        waits_of_attempt = waits[attempt]
        assert all(ceiling * SECOND / 2 <= wait <= ceiling * SECOND for wait in waits_of_attempt)
        # Of 40 draws, the probability that none is in the upper half or none in the lower half is 2 in 2^40.
        assert min(waits_of_attempt) < ceiling * SECOND * 3 / 4 < max(waits_of_attempt)


def test_without_a_back_off_a_failed_message_is_pending_at_once(tw: Tickwheel) -> None:
    queue = tw.create_queue("impatient", backoff=timedelta(0), backoff_max=timedelta(0))
    queue.enqueue(id="m")
    assert take(queue).fail() == "pending"


def test_the_newest_error_text_is_kept_up_to_1_kib(queue: Queue) -> None:
    queue.enqueue(id="m")
    take(queue).fail("é" * 600, retry_in=timedelta(0))
    assert queue.get("m").error == "é" * 512
    take(queue).fail("second", retry_in=timedelta(0))
    assert queue.get("m").error == "second"
    take(queue).fail(retry_in=timedelta(0))
    assert queue.get("m").error == ""


def test_the_expiry_of_the_last_lease_is_an_error_that_includes_the_error_of_the_attempt_before(
    queue: Queue, clock: VirtualClock
) -> None:
    queue.enqueue(id="m", max_attempts=2)
    take(queue).fail("boom", retry_in=timedelta(0))
    take(queue, worker="w-1")
    clock.advance(30 * SECOND)
    error_text = "the lease of attempt 2 of 2 ended; worker w-1; the failure before: boom"
    assert (queue.get("m").state, queue.get("m").error) == ("errored", error_text)


@pytest.mark.parametrize("error", ["x" * 1024, "é" * 512, "x" + "é" * 511, "xy" + "𝄞" * 255])
def test_the_error_text_of_the_last_expiry_is_cut_to_1_kib_between_characters(
    queue: Queue, clock: VirtualClock, error: str
) -> None:
    queue.enqueue(id="m", max_attempts=2)
    take(queue).fail(error, retry_in=timedelta(0))
    take(queue, worker="w" * 64)
    clock.advance(30 * SECOND)
    whole = f"the lease of attempt 2 of 2 ended; worker {'w' * 64}; the failure before: {error}"
    assert queue.get("m").error == whole.encode()[:1024].decode(errors="ignore")


def test_a_final_failure_is_errored_with_any_number_of_attempts_left(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m", max_attempts=9)
    message = take(queue)
    with pytest.raises(InvalidArgument, match="give retry_in or final=True, not both"):
        message.fail("no such card", SECOND, final=True)
    assert message.fail("no such card", final=True) == "errored"
    view = queue.get("m")
    assert (view.attempt, view.error) == (1, "no such card")
    queue.redrive("m")
    assert take(queue).attempt == 1


def test_a_repeated_request_never_returns_a_message_that_another_worker_has_leased_since(
    queue: Queue, clock: VirtualClock
) -> None:
    queue.enqueue(id="m")
    first = take(queue, request_id="caller:1")
    clock.advance(30 * SECOND)
    other = take(queue)
    assert other.token != first.token
    assert queue.dequeue(request_id="caller:1") == []


def test_a_message_names_its_worker_while_the_worker_holds_the_lease(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    take(queue, worker="encoder 7")
    assert queue.get("m").worker == "encoder 7"
    clock.advance(30 * SECOND)
    assert queue.get("m").worker == ""


def test_finished_messages_are_deleted_after_their_retention_and_their_ids_can_be_used_again(
    tw: Tickwheel, clock: VirtualClock, bring: Bring
) -> None:
    queue = tw.create_queue("q", retention=timedelta(hours=1), errored_retention=timedelta(hours=2))
    for state in ("completed", "cancelled", "errored"):
        bring(state, queue, id=state)
    assert not queue.enqueue(b"payload", id="completed").created
    clock.advance(timedelta(hours=1))
    for state in ("completed", "cancelled"):
        with pytest.raises(MessageNotFound):
            queue.get(state)
        result = queue.enqueue(b"another payload", id=state)
        assert (result.created, result.state) == (True, "pending")
        assert queue.get(state).version == 1
    assert queue.get("errored").state == "errored"
    clock.advance(timedelta(hours=1))
    assert queue.counts()["errored"] == 0


def test_timers_of_a_deleted_message_do_not_affect_a_new_message_of_the_same_id(
    queue: Queue, clock: VirtualClock
) -> None:
    queue.enqueue(id="m", delay=timedelta(hours=2))
    queue.cancel("m")
    clock.advance(timedelta(minutes=10))
    queue.enqueue(id="m", delay=timedelta(hours=5))
    clock.advance(timedelta(hours=5) - MS)
    assert queue.get("m").state == "invisible"
    clock.advance(MS)
    assert queue.get("m").state == "pending"


def test_retention_is_never_shorter_than_the_time_in_which_a_call_may_be_repeated(
    tw: Tickwheel, clock: VirtualClock
) -> None:
    queue = tw.create_queue("brief", retention=timedelta(0), errored_retention=timedelta(0))
    queue.enqueue(id="m")
    message = take(queue)
    message.complete()
    clock.advance(timedelta(minutes=5) - MS)
    message.complete()
    clock.advance(MS)
    with pytest.raises(MessageNotFound):
        queue.get("m")


def test_the_timer_of_a_lease_that_was_settled_sends_no_call(
    tw: Tickwheel, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    execute = ShardConnection.execute

    def noted(link: ShardConnection, command: Command) -> Any:
        if isinstance(command, Call):
            sent.append(command.script.name)
        return execute(link, command)

    monkeypatch.setattr(ShardConnection, "execute", noted)
    queue = tw.create_queue("q", max_attempts=1, errored_retention=timedelta(minutes=5))
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(4))
    completed, failed, cancelled, died = sorted(queue.dequeue(4), key=lambda message: message.id)
    # The timers of the leases are filed by now, since a timer waits in the inbox for a shorter time.
    clock.advance(timedelta(seconds=5))
    completed.complete()
    failed.fail()
    queue.cancel(cancelled.id)
    clock.advance(timedelta(seconds=20))
    assert "expire" not in sent
    clock.advance(timedelta(minutes=20))
    assert sent.count("expire") == 1
    assert "drop_slot" in sent
    assert not any(queue.counts().values())
    assert died.attempt == 1
