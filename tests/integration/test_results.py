"""A completed message keeps its result for as long as its record."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import InvalidArgument, LeaseLost, Queue
from tickwheel.testing import VirtualClock

SECOND = timedelta(seconds=1)
pytestmark = [pytest.mark.integration, pytest.mark.queue(lease=30 * SECOND)]

Dump = Callable[[], dict[str, Any]]


@pytest.mark.parametrize("result", [None, "", "done", "x" * 1024, "é" * 512, "nul \0 and line\n"])
@pytest.mark.parametrize("deadline", [None, SECOND])
def test_a_result_is_kept_for_the_retention(
    queue: Queue, clock: VirtualClock, result: str | None, deadline: timedelta | None
) -> None:
    queue.enqueue(b"payload", id="m", metadata={"a": "b"}, deadline=deadline)
    [message] = queue.dequeue(worker="w")
    message.complete(result)
    clock.advance(timedelta(minutes=10) - SECOND)
    view = queue.get("m")
    assert (view.state, view.result, view.error, view.payload) == ("completed", result, "", b"")
    assert [view.result for view in queue.messages("completed")] == [result]
    assert queue.leased("m", message.token).payload == b""


def test_a_message_that_is_not_completed_has_no_result(queue: Queue) -> None:
    queue.enqueue(id="m")
    [message] = queue.dequeue()
    message.fail("boom", final=True)
    assert (queue.get("m").result, queue.get("m").error) == (None, "boom")


def test_a_result_replaces_the_error_of_an_earlier_attempt(queue: Queue) -> None:
    queue.enqueue(id="m", max_attempts=3)
    queue.dequeue()[0].fail("boom", retry_in=timedelta(0))
    queue.dequeue()[0].complete()
    assert (queue.get("m").result, queue.get("m").error) == (None, "")


def test_completing_again_with_another_result_changes_nothing(queue: Queue, dump: Dump) -> None:
    queue.enqueue(id="m")
    [message] = queue.dequeue()
    message.complete("first")
    before = dump()
    message.complete("second")
    message.complete()
    assert dump() == before
    assert queue.get("m").result == "first"


def test_each_of_many_messages_has_its_own_result(queue: Queue) -> None:
    for n in range(300):
        queue.enqueue(id=f"m{n}")
    messages = queue.dequeue(limit=300)
    results = [None if n % 3 == 0 else f"result of {message.id}" for n, message in enumerate(messages)]
    queue.complete_many(messages, results)
    results_by_id = {view.id: view.result for view in queue.messages()}
    assert results_by_id == {message.id: result for message, result in zip(messages, results, strict=True)}


def test_messages_after_a_lost_lease_get_their_own_results(queue: Queue) -> None:
    for n in range(9):
        queue.enqueue(id=f"m{n}")
    messages = queue.dequeue(limit=9)
    for message in messages[::3]:
        queue.cancel(message.id)
    with pytest.raises(LeaseLost) as refused:
        queue.complete_many(messages, [message.id for message in messages])
    assert {message.id for message in refused.value.lost} == {message.id for message in messages[::3]}
    assert all(view.result == view.id for view in queue.messages("completed"))


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("x" * 1025, "result must be 0 to 1024 bytes of UTF-8, not 1025"),
        ("é" * 513, "not 1026"),
        ("\ud800", "valid Unicode"),
        (b"bytes", "result must be a str, not bytes"),
        (17, "result must be a str, not int"),
    ],
)
def test_an_invalid_result_is_refused_before_a_call_is_sent(queue: Queue, dump: Dump, result: Any, why: str) -> None:
    queue.enqueue(id="m")
    [message] = queue.dequeue()
    before = dump()
    with pytest.raises(InvalidArgument, match=why):
        message.complete(result)
    with pytest.raises(InvalidArgument, match=why):
        queue.complete_many([message], [result])
    assert dump() == before


@pytest.mark.parametrize("results", [[], ["a", "b"], "a", {"a": "b"}])
def test_results_are_a_list_with_one_entry_for_each_message(queue: Queue, results: Any) -> None:
    queue.enqueue(id="m")
    messages = queue.dequeue()
    with pytest.raises(InvalidArgument, match="results"):
        queue.complete_many(messages, results)
    assert queue.get("m").state == "running"
