"""The turns of queues that may have due messages for their sinks."""

import pytest

from tickwheel.sinks.ready_queues import ReadyQueues

pytestmark = pytest.mark.unit


def take_all(ready: ReadyQueues) -> list[str]:
    return list(iter(ready.take, None))


def test_queues_of_confirmed_sinks_and_others_take_turns_in_their_order() -> None:
    ready = ReadyQueues(lambda queue: queue.isupper())
    ready.add("abcAdBe")
    assert "".join(take_all(ready)) == "AaBbcde"
    ready.add("abA")
    ready.add("ba")
    assert "".join(take_all(ready)) == "Aab"
    ready.add("abA")
    ready.add_failed("c")
    ready.keep("b")
    assert take_all(ready) == ["b"]


def test_a_queue_is_ready_once_although_its_sink_is_confirmed_meanwhile() -> None:
    confirmed: set[str] = set()
    ready = ReadyQueues(confirmed.__contains__)
    ready.add("ab")
    confirmed.add("b")
    ready.add("b")
    assert take_all(ready) == ["b", "a"]


def test_a_queue_that_has_failed_has_its_turn_after_all_that_are_ready_then() -> None:
    ready = ReadyQueues(str.isupper)
    ready.add_failed("x")
    ready.add("ABCDx")
    taken = [ready.take() for _ in range(4)]
    # Others that become ready meanwhile wait until the queue has had its turn.
    ready.add("EF")
    assert [*taken, *take_all(ready)] == ["A", "B", "C", "D", "x", "E", "F"]
    ready.add("x")
    ready.add("AB")
    assert take_all(ready) == ["x", "A", "B"]


def test_queues_that_have_failed_take_turns() -> None:
    ready = ReadyQueues(str.isupper)
    turns = []
    for _ in range(4):
        ready.add("xyA")
        while (queue := ready.take()) == "A":
            turns.append(queue)
        assert queue is not None
        turns.append(queue)
        ready.add_failed(queue)
    assert "".join(turns) == "AxAyAxAy"


def test_a_failed_queue_that_is_removed_delays_no_other() -> None:
    ready = ReadyQueues(str.isupper)
    ready.add_failed("x")
    ready.add("A")
    assert ready.take() == "A"
    ready.keep("AB")
    ready.add("AB")
    assert take_all(ready) == ["A", "B"]
