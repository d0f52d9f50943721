"""Who is woken: as many as there are messages, in turn, and no wake-up ends with somebody who has no use for it."""

from functools import partial

import pytest

from tickwheel.redis.wait_list import Waiter, WaitList

pytestmark = pytest.mark.unit


class Line:
    """Waiters by name, and whom the list told to wake up, in that order."""

    def __init__(self, names: str, queue: str = "q", waiters: WaitList | None = None) -> None:
        self.list = WaitList() if waiters is None else waiters
        self.told: list[str] = []
        self._waiters = {name: self.list.add(queue, partial(self.told.append, name)) for name in names}

    def __getitem__(self, name: str) -> Waiter:
        return self._waiters[name]

    def looks(self, names: str) -> None:
        """They were woken, and look."""
        assert all(self.list.consume(self[name]) for name in names)


def test_as_many_waiters_are_woken_as_messages_became_ready_in_the_order_of_arrival() -> None:
    line = Line("abc")

    line.list.wake("q", 2)

    assert line.told == ["a", "b"]


def test_with_more_messages_than_waiters_each_waiter_is_woken_once() -> None:
    line = Line("abc")

    line.list.wake("q", 10)

    assert line.told == ["a", "b", "c"]


def test_a_woken_waiter_that_has_not_checked_yet_is_not_woken_for_another_message() -> None:
    line = Line("abc")

    for count in (1, 2, 1):
        line.list.wake("q", count)

    assert line.told == ["a", "b", "c"]


def test_waiters_are_woken_in_turn() -> None:
    line = Line("abc")

    for name in "abca":
        line.list.wake("q", 1)
        line.looks(name)

    assert line.told == ["a", "b", "c", "a"]


def test_a_message_wakes_no_waiter_of_another_queue() -> None:
    line = Line("ab")

    line.list.wake("another", 1)

    assert line.told == []


def test_a_waiter_stays_woken_until_it_checks() -> None:
    line = Line("a")
    assert not line.list.consume(line["a"])

    line.list.wake("q", 1)

    assert line.list.consume(line["a"])
    assert not line.list.consume(line["a"])


def test_the_unused_wake_up_of_a_leaving_waiter_goes_to_another() -> None:
    line = Line("abc")
    line.list.wake("q", 1)

    line.list.remove(line["a"])

    assert line.told == ["a", "b"]
    line.looks("b")


def test_the_used_wake_up_of_a_leaving_waiter_goes_to_no_other() -> None:
    line = Line("abc")
    line.list.wake("q", 1)
    line.looks("a")

    line.list.remove(line["a"])

    assert line.told == ["a"]


def test_a_waiter_passes_an_inherited_wake_up_on() -> None:
    line = Line("abc")
    line.list.wake("q", 1)
    line.list.remove(line["a"])
    line.looks("b")

    line.list.forward(line["b"])

    assert line.told == ["a", "b", "c"]


def test_a_wake_up_ends_with_the_last_waiter() -> None:
    line = Line("ab")
    line.list.wake("q", 1)

    for name in "ab":
        line.list.remove(line[name])

    assert line.list.queues() == []
    assert line.told == ["a", "b"]


def test_leaving_twice_equals_leaving_once() -> None:
    line = Line("abc")
    line.list.wake("q", 1)

    for name in "aabccc":
        line.list.remove(line[name])

    assert line.told == ["a", "b", "c"]


def test_a_waiter_that_left_is_not_woken() -> None:
    line = Line("abc")
    line.list.remove(line["a"])

    line.list.wake("q", 1)

    assert line.told == ["b"]


def test_a_wake_up_is_passed_to_each_of_the_other_waiters_once() -> None:
    line = Line("abc")
    line.list.wake("q", 1)

    for name in "abc":
        line.looks(name)
        line.list.forward(line[name])

    assert line.told == ["a", "b", "c"]


def test_a_waiter_that_passed_a_wake_up_on_has_none_left() -> None:
    line = Line("abc")
    line.list.wake("q", 1)
    line.looks("a")

    line.list.forward(line["a"])
    line.list.forward(line["a"])

    assert line.told == ["a", "b"]


def test_a_wake_up_is_still_passed_on_after_all_waiters_were_woken() -> None:
    line = Line("abc")
    line.list.wake("q", 1)
    line.list.wake_all()
    line.looks("abc")
    line.told.clear()

    line.list.forward(line["a"])

    assert line.told == ["b"]


def test_a_sweep_wakes_the_next_waiter_of_each_queue_and_its_wake_up_is_not_passed_on() -> None:
    line = Line("abc")
    others = Line("de", "another", line.list)

    line.list.sweep()
    line.looks("a")
    line.list.forward(line["a"])
    line.list.sweep()

    assert line.told == ["a", "b"]
    assert others.told == ["d", "e"]


def test_all_waiters_are_woken_when_wake_ups_may_be_lost() -> None:
    line = Line("abc")
    others = Line("de", "another", line.list)

    line.list.wake_all()

    assert (line.told, others.told) == (["a", "b", "c"], ["d", "e"])
