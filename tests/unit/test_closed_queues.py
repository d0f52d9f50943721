"""The calls that wait for queues that do not exist or are blocked: which of them reads, and who wakes."""

from collections.abc import Callable, Iterable, Sequence

import pytest

from tests.support.sweep import sweep_all
from tickwheel.redis.closed_queues import MAX_READ
from tickwheel.redis.wait_line import JointWaiter
from tickwheel.redis.wait_list import WaitList

pytestmark = pytest.mark.unit


class WaitingForClosed:
    """Joint waiters that wait for closed queues, by name, and the names of those that were notified."""

    def __init__(self, **queues: Iterable[str]) -> None:
        self.list = WaitList()
        self.names: list[str] = []
        self.by_name: dict[str, JointWaiter] = {}
        for name, closed in queues.items():
            self.add(name, tuple(closed))

    def add(self, name: str, closed: Sequence[str], caller: str = "") -> None:
        self.by_name[name] = self.list.add_joint((), self._callback(name), caller, closed)

    def _callback(self, name: str) -> Callable[[], None]:
        return lambda: self.names.append(name)

    def leave(self, name: str) -> None:
        self.list.remove_joint(self.by_name.pop(name))

    def sweep(self) -> tuple[str, Sequence[str]]:
        """Return the name of the waiter that was notified by a sweep, and what it has to read. It reads this."""
        self.names.clear()
        sweep_all(self.list)
        [name] = self.names
        joint = self.by_name[name]
        queues = joint.to_read
        self.list.on_read(joint, queues)
        return name, queues


def test_a_sweep_wakes_one_waiter_in_turn_which_reads_the_queues_of_all_waiters() -> None:
    waiting = WaitingForClosed(first="ab", second="ab", third="bc")
    read = [waiting.sweep() for _ in range(4)]
    assert [name for name, _ in read] == ["first", "second", "third", "first"]
    assert [sorted(queues) for _, queues in read] == [["a", "b", "c"]] * 4
    assert waiting.list.count() == 3


def test_callers_that_wait_for_the_same_queues_have_turns_for_their_other_queues() -> None:
    waiting = WaitingForClosed()
    shared = [f"shared-{n}" for n in range(MAX_READ)]
    for caller in ("one", "two", "three"):
        waiting.add(caller, (*shared, f"own-{caller}"), caller)
    read = [set(waiting.sweep()[1]) for _ in range(2)]
    assert [len(queues) for queues in read] == [MAX_READ] * 2
    assert read[0] | read[1] == {*shared, "own-one", "own-two", "own-three"}


def test_the_chosen_waiter_reads_before_it_sleeps_and_checks_nothing_else() -> None:
    waiting = WaitingForClosed(only="ab")
    only = waiting.by_name["only"]
    sweep_all(waiting.list)
    assert not waiting.list.may_sleep(only)
    assert waiting.list.announced(only) == ([], False)
    waiting.list.on_read(only, only.to_read)
    assert waiting.list.may_sleep(only)


def test_many_queues_are_read_a_part_at_a_time_and_all_of_them_in_turn() -> None:
    names = [f"q{n}" for n in range(2 * MAX_READ + 10)]
    waiting = WaitingForClosed(first=names[:300], second=names[300:])
    parts = [waiting.sweep()[1] for _ in range(3)]
    assert [len(set(part)) for part in parts] == [MAX_READ] * 3
    assert set().union(*parts) == set(names)


def test_a_caller_with_many_queues_delays_the_read_of_no_queue_of_another_caller() -> None:
    waiting = WaitingForClosed()
    for n in range(20):
        waiting.add(f"greedy{n}", [f"g{n}-{m}" for m in range(100)], "greedy")
    waiting.add("modest", "abc", "modest")
    for _ in range(3):
        assert {"a", "b", "c"} <= set(waiting.sweep()[1])


def test_more_callers_than_a_sweep_reads_queues_take_turns() -> None:
    waiting = WaitingForClosed()
    for n in range(2 * MAX_READ):
        waiting.add(f"w{n}", [f"q{n}"], f"caller{n}")
    assert len({queue for _ in range(2) for queue in waiting.sweep()[1]}) == 2 * MAX_READ


def test_the_callers_take_turns_as_readers_whatever_the_number_of_their_calls() -> None:
    waiting = WaitingForClosed()
    for n in range(20):
        waiting.add(f"greedy{n}", [f"g{n}"], "greedy")
    waiting.add("modest", "a", "modest")
    assert [waiting.sweep()[0] for _ in range(4)].count("modest") == 2


def test_another_waiter_reads_if_the_chosen_one_leaves_before_it_has_read() -> None:
    waiting = WaitingForClosed(first="ab", second="b", third="c")
    sweep_all(waiting.list)
    queues = waiting.by_name["first"].to_read
    waiting.leave("first")
    assert waiting.names == ["first", "second"]
    assert waiting.by_name["second"].to_read == queues
    for name in ("second", "third"):
        waiting.leave(name)
    assert waiting.list.count() == 0


def test_no_other_waiter_reads_if_the_chosen_one_leaves_after_it_has_read() -> None:
    waiting = WaitingForClosed(first="ab", second="b")
    assert waiting.sweep()[0] == "first"
    waiting.leave("first")
    assert waiting.names == ["first"]


def test_all_waiters_of_a_closed_queue_are_woken_once_when_one_of_them_finds_the_queue_open() -> None:
    waiting = WaitingForClosed(first="ab", second="a", third="b")
    for _ in range(2):
        waiting.list.open(["a"])
    assert waiting.names == ["first", "second"]
    assert not waiting.list.may_sleep(waiting.by_name["first"])

    for joint in waiting.by_name.values():
        waiting.list.remove_joint(joint)
    waiting.list.open("ab")
    assert waiting.names == ["first", "second"]
    assert waiting.list.count() == 0


def test_the_waiters_of_all_callers_are_woken_when_a_queue_is_open() -> None:
    waiting = WaitingForClosed()
    for caller in ("x", "y"):
        waiting.add(caller, "a", caller)
    waiting.list.open(["a"])
    assert sorted(waiting.names) == ["x", "y"]


def test_a_waiter_of_a_closed_queue_searches_the_queue_at_the_end_of_all_waits() -> None:
    waiting = WaitingForClosed(only="ab")
    waiting.list.wake_all()
    assert waiting.names == ["only"]
    assert waiting.list.announced(waiting.by_name["only"])[0] == ["a", "b"]
