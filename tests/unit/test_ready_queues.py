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
    ready.add("aA")
    ready.clear()
    assert ready.take() is None


def test_a_queue_is_ready_once_although_its_sink_is_confirmed_meanwhile() -> None:
    confirmed: set[str] = set()
    ready = ReadyQueues(confirmed.__contains__)
    ready.add("ab")
    confirmed.add("b")
    ready.add("b")
    assert take_all(ready) == ["b", "a"]
