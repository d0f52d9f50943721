"""The list of waiters: one waiter is woken for each message, in turn, and an unused wake-up is passed on."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from tests.support.sweep import sweep_all
from tickwheel.redis.wait_line import Waiter
from tickwheel.redis.wait_list import WAKEUPS_AT_ONCE, WaitList

pytestmark = pytest.mark.unit


class NamedWaiters:
    """Named waiters, and the names of the woken waiters in order."""

    def __init__(
        self, names: str, queue: str = "q", waiters: WaitList | None = None, filters: Mapping[str, str] | None = None
    ) -> None:
        """``filters`` has the filter of each waiter. By default, no waiter has a filter."""
        self.list = WaitList() if waiters is None else waiters
        self.woken: list[str] = []
        wheres = dict.fromkeys(names, "") if filters is None else filters
        self._waiters = {
            name: self.list.add(queue, partial(self.woken.append, name), wheres[name].encode()) for name in names
        }

    def __getitem__(self, name: str) -> Waiter:
        return self._waiters[name]

    def consume(self, names: str) -> None:
        """Consume the wake-ups of these waiters."""
        assert all(self.list.consume(self[name]) for name in names)


def test_as_many_waiters_are_woken_as_messages_became_ready_in_the_order_of_arrival() -> None:
    group = NamedWaiters("abc")

    group.list.wake("q", 2)

    assert group.woken == ["a", "b"]


def test_with_more_messages_than_waiters_each_waiter_is_woken_once() -> None:
    group = NamedWaiters("abc")

    group.list.wake("q", 10)

    assert group.woken == ["a", "b", "c"]


def test_a_woken_waiter_that_has_not_checked_yet_is_not_woken_for_another_message() -> None:
    group = NamedWaiters("abc")

    for count in (1, 2, 1):
        group.list.wake("q", count)

    assert group.woken == ["a", "b", "c"]


def test_waiters_are_woken_in_turn() -> None:
    group = NamedWaiters("abc")

    for name in "abca":
        group.list.wake("q", 1)
        group.consume(name)

    assert group.woken == ["a", "b", "c", "a"]


def test_a_message_wakes_no_waiter_of_another_queue() -> None:
    group = NamedWaiters("ab")

    group.list.wake("another", 1)

    assert group.woken == []


def test_a_waiter_stays_woken_until_it_checks() -> None:
    group = NamedWaiters("a")
    assert not group.list.consume(group["a"])

    group.list.wake("q", 1)

    assert group.list.consume(group["a"])
    assert not group.list.consume(group["a"])


def test_the_unused_wake_up_of_a_leaving_waiter_goes_to_another() -> None:
    group = NamedWaiters("abc")
    group.list.wake("q", 1)

    group.list.remove(group["a"])

    assert group.woken == ["a", "b"]
    group.consume("b")


@pytest.mark.parametrize("where", ["", "filter"])
def test_the_wake_up_of_a_waiter_that_leaves_without_a_search_goes_to_another(where: str) -> None:
    group = NamedWaiters("abc", filters=dict.fromkeys("abc", where))
    group.list.wake("q", 1)
    group.consume("a")

    group.list.restore(group["a"])
    group.list.remove(group["a"])

    assert group.woken == ["a", "b"]


def test_the_used_wake_up_of_a_leaving_waiter_goes_to_no_other() -> None:
    group = NamedWaiters("abc")
    group.list.wake("q", 1)
    group.consume("a")

    group.list.remove(group["a"])

    assert group.woken == ["a"]


def test_a_waiter_passes_an_inherited_wake_up_on() -> None:
    group = NamedWaiters("abc", filters={name: name for name in "abc"})
    group.list.wake("q", 1)
    group.list.remove(group["a"])
    group.consume("b")

    group.list.forward(group["b"])

    assert group.woken == ["a", "b", "c"]


def test_a_wake_up_ends_with_the_last_waiter() -> None:
    group = NamedWaiters("ab")
    group.list.wake("q", 1)

    for name in "ab":
        group.list.remove(group[name])

    assert group.list.queues() == []
    assert group.woken == ["a", "b"]


def test_leaving_twice_equals_leaving_once() -> None:
    group = NamedWaiters("abc")
    group.list.wake("q", 1)

    for name in "aabccc":
        group.list.remove(group[name])

    assert group.woken == ["a", "b", "c"]


def test_a_waiter_that_left_is_not_woken() -> None:
    group = NamedWaiters("abc")
    group.list.remove(group["a"])

    group.list.wake("q", 1)

    assert group.woken == ["b"]


def test_a_wake_up_is_passed_to_each_of_the_other_waiters_once() -> None:
    group = NamedWaiters("abc", filters={name: name for name in "abc"})
    group.list.wake("q", 1)

    for name in "abc":
        group.consume(name)
        group.list.forward(group[name])

    assert group.woken == ["a", "b", "c"]


def test_a_waiter_that_passed_a_wake_up_on_has_none_left() -> None:
    group = NamedWaiters("abc", filters={name: name for name in "abc"})
    group.list.wake("q", 1)
    group.consume("a")

    group.list.forward(group["a"])
    group.list.forward(group["a"])

    assert group.woken == ["a", "b"]


def test_a_wake_up_is_still_passed_on_after_all_waiters_were_woken() -> None:
    group = NamedWaiters("abc", filters={name: name for name in "abc"})
    group.list.wake("q", 1)
    group.list.wake_all()
    group.consume("abc")
    group.woken.clear()

    group.list.forward(group["a"])

    assert group.woken == ["b"]


def test_a_sweep_wakes_the_next_waiter_of_each_queue_and_its_wake_up_is_not_passed_on() -> None:
    group = NamedWaiters("abc", filters={name: name for name in "abc"})
    others = NamedWaiters("de", "another", group.list)

    sweep_all(group.list)
    group.consume("a")
    group.list.forward(group["a"])
    sweep_all(group.list)

    assert group.woken == ["a", "b"]
    assert others.woken == ["d", "e"]


def test_all_waiters_are_woken_when_wake_ups_may_be_lost() -> None:
    group = NamedWaiters("abc")
    others = NamedWaiters("de", "another", group.list)

    for queue in group.list.queues():
        group.list.note_lost(queue)
    while group.list.wake_lost_part():
        pass

    assert (group.woken, others.woken) == (["a", "b", "c"], ["d", "e"])


SAME = {"a": "x", "b": "x", "c": "x", "d": "y"}


def test_a_wake_up_is_passed_to_one_waiter_of_each_filter() -> None:
    group = NamedWaiters("abcd", filters=SAME)
    group.list.wake("q", 1)

    for name in "ad":
        group.consume(name)
        group.list.forward(group[name])

    assert group.woken == ["a", "d"]


@pytest.mark.parametrize("count", [2, 100])
def test_many_messages_that_no_filter_matches_cost_one_search_of_each_filter(count: int) -> None:
    group = NamedWaiters("abcd", filters=SAME)
    group.list.wake("q", count)

    for name in "ad":
        group.consume(name)
    for name in "ad":
        group.list.forward(group[name])

    assert group.woken == ["a", "d"]


def test_messages_that_become_ready_during_a_search_cost_one_more_search() -> None:
    group = NamedWaiters("abc", filters=SAME)
    group.list.wake("q", 1)
    group.consume("a")
    group.list.wake("q", 1)
    group.list.wake("q", 1)
    group.list.forward(group["a"])
    group.consume("b")
    group.list.forward(group["b"])

    assert group.woken == ["a", "b"]


def test_a_search_that_finds_messages_wakes_twice_as_many_waiters_of_its_filter() -> None:
    group = NamedWaiters("abcdefgh", filters=dict.fromkeys("abcdefgh", "x"))
    group.list.wake("q", 6)
    assert group.woken == ["a"]

    group.consume("a")
    group.list.remove(group["a"])
    assert group.woken == ["a", "b", "c"]

    group.consume("bc")
    group.list.remove(group["b"])
    assert group.woken == ["a", "b", "c", "d", "e", "f"]


def test_each_message_wakes_a_waiter_of_its_filter_if_one_filter_takes_no_message() -> None:
    group = NamedWaiters("abcd", filters={"a": "x", "b": "x", "c": "y", "d": "y"})
    group.list.wake("q", 2)
    assert group.woken == ["a", "c"]
    group.consume("ac")

    group.list.forward(group["a"])
    group.list.remove(group["c"])

    assert group.woken == ["a", "c", "d"]


def test_the_wake_up_of_a_waiter_that_leaves_before_its_search_goes_to_a_waiter_of_the_same_filter() -> None:
    group = NamedWaiters("abc", filters=SAME)
    group.list.wake("q", 1)

    group.list.remove(group["a"])

    assert group.woken == ["a", "b"]


def test_a_waiter_that_is_woken_during_its_first_search_searches_again() -> None:
    group = NamedWaiters("a", filters=SAME)
    group.list.wake("q", 1)
    group.list.forward(group["a"])

    assert group.list.consume(group["a"])
    group.list.forward(group["a"])
    group.list.wake("q", 1)

    assert group.woken == ["a", "a"]


def test_all_waiters_are_woken_when_the_waits_end() -> None:
    group = NamedWaiters("abcd", filters=SAME)

    group.list.wake_all()

    assert sorted(group.woken) == ["a", "b", "c", "d"]


def test_a_search_that_does_not_end_stops_no_other_waiter_of_its_filter() -> None:
    group = NamedWaiters("abcd", filters=dict.fromkeys("abcd", "x"))
    group.list.wake("q", 1)
    group.consume("a")
    sweep_all(group.list)
    group.consume("b")
    group.list.forward(group["b"])
    group.woken.clear()

    sweep_all(group.list)
    group.list.wake("q", 1)

    assert group.woken == ["c", "d"]


def test_a_sweep_wakes_the_waiters_in_parts() -> None:
    waiters, woken = WaitList(), Counter[str]()

    def notify(queue: str) -> Callable[[], None]:
        return lambda: woken.update([queue])

    for n in range(3 * WAKEUPS_AT_ONCE):
        waiters.add(f"q{n}", notify(f"q{n}"))
    waiters.begin_sweep()
    totals = []
    while waiters.sweep_part():
        totals.append(woken.total())
    assert totals == [WAKEUPS_AT_ONCE, 2 * WAKEUPS_AT_ONCE]
    assert set(woken.values()) == {1}
    assert woken.total() == 3 * WAKEUPS_AT_ONCE
