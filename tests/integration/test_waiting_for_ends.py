"""`Queue.get` with a wait returns when the message ends. It is woken, and does not poll."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from tests.support.command_stats import calls_of
from tests.support.wait_until import eventually
from tickwheel import InvalidArgument, Message, MessageNotFound, MessageView, Queue, Tickwheel
from tickwheel.operations.inspect import RECHECK_S
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

# Longer than any test, so that a call that is not woken fails the test.
LONG = 60
# Longer than a payload that is part of the record, and longer than what else the server sends during a test.
LARGE = b"x" * 262_144
# Less than the time after which a waiting call reads its message anyway.
WOKEN_S = RECHECK_S / 2
Wait = Callable[..., Future[MessageView]]


@pytest.fixture
def wait(queue: Queue, server: Any) -> Iterator[Wait]:
    """Begin to wait for a message of the queue in another thread, and return once the process has a subscription."""
    with ThreadPoolExecutor(4) as threads:

        def begin(id: str, exclusive_value: str | None = None) -> Future[MessageView]:
            waiting = threads.submit(queue.get, id, exclusive_value, wait=LONG)
            eventually(lambda: subscriptions(server) > 0 or waiting.done(), "the call waits")
            return waiting

        yield begin


def subscriptions(server: Any) -> int:
    """Return the number of channels of ends that have a subscriber."""
    return sum(channel.endswith(b":ended") for channel in server.execute_command("PUBSUB", "SHARDCHANNELS"))


def take(queue: Queue) -> Message:
    [message] = queue.dequeue()
    return message


def stats(server: Any) -> tuple[int, int]:
    """Return the numbers of script calls and of bytes that the server has sent to all its clients so far."""
    return calls_of(server, "evalsha"), server.info("stats")["total_net_output_bytes"]


def check_woken(waiting: Future[MessageView], state: str) -> MessageView:
    began = time.monotonic()
    view = waiting.result(LONG)
    assert view.state == state
    assert time.monotonic() - began < WOKEN_S
    return view


def test_a_completion_with_a_result_wakes_the_call(queue: Queue, wait: Wait) -> None:
    queue.enqueue(id="m")
    waiting = wait("m")
    take(queue).complete("done")
    assert check_woken(waiting, "completed").result == "done"


def test_a_batch_with_results_also_wakes_the_calls_for_messages_without_one(queue: Queue, wait: Wait) -> None:
    queue.enqueue(id="m")
    waiting = wait("m")
    queue.complete_many([take(queue)], [None])
    assert check_woken(waiting, "completed").result is None


def test_a_cancellation_and_a_final_failure_wake_the_call(queue: Queue, wait: Wait) -> None:
    queue.enqueue(id="cancelled", delay=3_600)
    waiting = wait("cancelled")
    queue.cancel("cancelled")
    check_woken(waiting, "cancelled")
    queue.enqueue(id="failed")
    waiting = wait("failed")
    take(queue).fail("boom", final=True)
    assert check_woken(waiting, "errored").error == "boom"


@pytest.mark.queue(lease=timedelta(seconds=10), max_attempts=2)
def test_the_end_of_the_last_lease_wakes_the_call_and_a_retry_does_not(
    queue: Queue, clock: VirtualClock, wait: Wait
) -> None:
    queue.enqueue(id="m")
    waiting = wait("m")
    take(queue).fail(retry_in=0)
    take(queue)
    assert not waiting.done()
    clock.advance(10)
    assert "the lease of attempt 2 of 2 ended" in check_woken(waiting, "errored").error


@pytest.mark.queue(exclusive_key="of")
def test_a_call_waits_for_a_message_of_an_exclusive_queue(queue: Queue, wait: Wait) -> None:
    queue.enqueue(id="m", metadata={"of": "a"})
    queue.enqueue(id="m", metadata={"of": "b"}, deadline=timedelta(days=1))
    first, second = wait("m", "a"), wait("m", "b")
    message = take(queue)
    message.complete("done")
    assert check_woken(first, "completed").exclusive_value == "a"
    assert not second.done()
    take(queue).complete("done")
    check_woken(second, "completed")


def test_a_message_that_has_ended_is_returned_at_once(queue: Queue) -> None:
    queue.enqueue(id="m")
    take(queue).complete()
    assert queue.get("m", wait=LONG).state == "completed"


def test_after_the_wait_the_message_is_returned_as_it_is(queue: Queue) -> None:
    queue.enqueue(id="m")
    assert queue.get("m", wait=0.05).state == "pending"
    assert queue.get("m", wait=0).state == "pending"


@pytest.mark.queue(payload_limit=len(LARGE))
def test_a_waiting_call_reads_a_large_payload_only_when_the_message_has_ended(
    queue: Queue, server: Any, wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tickwheel.operations.inspect.RECHECK_S", 0.01)
    queue.enqueue(LARGE, id="m")
    calls, sent = stats(server)
    waiting = wait("m")
    eventually(lambda: stats(server)[0] > calls + 50, "the call reads its message often", pause=0.05)
    assert stats(server)[1] - sent < len(LARGE)
    # An errored message keeps its payload.
    take(queue).fail("boom", final=True)
    view = waiting.result(LONG)
    assert (view.state, view.payload, view.error) == ("errored", LARGE, "boom")


@pytest.mark.queue(payload_limit=len(LARGE))
def test_the_read_that_ends_a_wait_has_the_large_payload(queue: Queue) -> None:
    queue.enqueue(LARGE, id="m")
    assert queue.get("m").payload == LARGE
    assert queue.get("m", wait=0.05).payload == LARGE
    take(queue).fail("boom", final=True)
    assert queue.get("m", wait=LONG).payload == LARGE


def test_a_call_for_a_missing_message_does_not_wait(queue: Queue) -> None:
    with pytest.raises(MessageNotFound):
        queue.get("m", wait=LONG)


@pytest.mark.parametrize("value", [-1, 3_601, True, float("nan")])
def test_a_wait_is_at_most_an_hour(queue: Queue, value: float) -> None:
    with pytest.raises(InvalidArgument, match="wait must be"):
        queue.get("m", wait=value)


def test_the_subscription_ends_after_the_last_waiting_call(
    queue: Queue, tw: Tickwheel, server: Any, wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tickwheel.redis.subscriptions.IDLE_S", 0.0)
    queue.enqueue(id="m")
    waiting = wait("m")
    eventually(lambda: subscriptions(server) == 1, "the call has its subscription")
    queue.cancel("m")
    check_woken(waiting, "cancelled")
    eventually(lambda: subscriptions(server) == 0, "the subscription has ended")
