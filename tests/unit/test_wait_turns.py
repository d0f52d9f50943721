"""The turns of callers: a wake-up goes to the next caller, and there to the next filter and the next waiter."""

import random
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from tests.support.sweep import sweep_all
from tickwheel.redis.wait_line import Line, Waiter
from tickwheel.redis.wait_list import WaitList

pytestmark = pytest.mark.unit

MANY = 300


class Calls:
    """Waiting calls, and those of them that were woken, in order. A call is a pair: its caller and its filter."""

    def __init__(self) -> None:
        self.list = WaitList()
        self.woken: list[tuple[str, str]] = []
        self._waiters: dict[tuple[str, str], Waiter] = {}

    def add(self, caller: str, wheres: Iterable[str]) -> None:
        """Add a call of the caller for each filter. Its first search finds nothing."""
        for where in wheres:
            call = caller, where
            waiter = self.list.add("q", partial(self.woken.append, call), where.encode(), caller)
            self.list.forward(waiter)
            self._waiters[call] = waiter

    def search(self, *wanted: str) -> list[tuple[str, str]]:
        """Let the woken calls search, and those that they wake, until none is left. Return the calls that searched.

        A call finds a message if its filter is one of ``wanted``.
        """
        searched = []
        while self.woken:
            call = self.woken.pop(0)
            waiter = self._waiters[call]
            assert self.list.consume(waiter)
            searched.append(call)
            if call[1] in wanted:
                self.list.remove(waiter)
            else:
                self.list.forward(waiter)
        return searched


def filters(count: int) -> list[str]:
    return [f"filter {n}" for n in range(count)]


def test_a_message_reaches_its_waiter_after_one_search_of_each_other_caller() -> None:
    calls = Calls()
    for caller in ("first", "second"):
        calls.add(caller, filters(MANY))
    calls.add("third", ["wanted"])

    calls.list.wake("q", 1)

    searched = [("first", "filter 0"), ("second", "filter 1"), ("third", "wanted")]
    assert calls.search("wanted") == searched


def test_a_caller_that_waits_again_has_the_next_turn_after_the_others() -> None:
    calls = Calls()
    calls.add("other", filters(MANY))
    for n in range(3):
        calls.add("own", ["wanted"])
        calls.list.wake("q", 1)
        assert calls.search("wanted") == [("other", f"filter {n}"), ("own", "wanted")]


def test_a_message_that_nobody_wants_delays_the_next_one_by_one_search() -> None:
    calls = Calls()
    calls.add("other", filters(MANY))
    calls.add("own", ["wanted"])
    calls.list.wake("q", 1)
    assert calls.list.consume(calls._waiters[calls.woken.pop(0)])

    # The second message becomes ready during the search for the first one.
    calls.list.wake("q", 1)

    assert calls.search("wanted")[0] == ("own", "wanted")


def test_a_message_that_nobody_wants_costs_one_search_for_each_filter_of_any_caller() -> None:
    calls = Calls()
    for caller in ("first", "second", "third"):
        calls.add(caller, filters(20))

    calls.list.wake("q", 7)

    assert sorted(where for _, where in calls.search()) == sorted(filters(20))


def test_callers_with_the_same_filter_share_the_number_of_searches() -> None:
    calls = Calls()
    for n in range(MANY):
        calls.add(f"caller {n}", ["same"])

    calls.list.wake("q", MANY)

    assert calls.search() == [("caller 0", "same")]


def test_callers_with_the_same_filter_receive_messages_in_turn() -> None:
    waiters = WaitList()
    woken: list[str] = []
    handles = {
        name: waiters.add("q", partial(woken.append, name), b"same", name[0]) for name in ("a1", "a2", "a3", "b1", "b2")
    }
    for n in range(5):
        waiters.wake("q", 1)
        assert waiters.consume(handles[woken[n]])
        waiters.remove(handles[woken[n]])

    assert woken == ["a1", "b1", "a2", "b2", "a3"]


def test_callers_without_a_filter_receive_messages_in_turn() -> None:
    waiters = WaitList()
    woken: list[str] = []
    for _ in range(MANY):
        waiters.add("q", partial(woken.append, "other"), caller="other")
    for _ in range(2):
        waiters.add("q", partial(woken.append, "own"), caller="own")

    waiters.wake("q", 5)

    assert woken == ["other", "own", "other", "own", "other"]


def test_sweeps_wake_callers_in_turn() -> None:
    calls = Calls()
    calls.add("other", filters(3))
    calls.add("own", filters(3))

    for _ in range(4):
        sweep_all(calls.list)

    assert calls.woken == [("other", "filter 0"), ("own", "filter 0"), ("other", "filter 1"), ("own", "filter 1")]


def test_a_search_that_finds_nothing_costs_no_check_of_all_waiters(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    calls.add("other", filters(MANY))
    calls.add("own", filters(MANY // 2))
    checks = 0
    may_find = Line._may_find

    def count(self: Line, group: Any) -> bool:
        nonlocal checks
        checks += 1
        return may_find(self, group)

    monkeypatch.setattr(Line, "_may_find", count)

    # Each filter has its search, and then each search gives its wake-up back.
    calls.list.wake("q", MANY)
    assert len(calls.search()) == MANY

    assert checks < 10 * MANY


@pytest.mark.parametrize("seed", range(10))
def test_no_wake_up_is_left_while_a_waiter_may_use_it(seed: int) -> None:
    chance = random.Random(seed)
    waiters = WaitList()
    sleeping: list[Waiter] = []
    for _ in range(2_000):
        if len(sleeping) < chance.randrange(12):
            where, caller = chance.choice((b"", b"x", b"y", b"z")), chance.choice("abc")
            sleeping.append(waiters.add("q", lambda: None, where, caller))
        step = chance.choice(("wake", "wake", "lost", "sweep", "remove", "begin search", "forward", "forward"))
        waiter = chance.choice(sleeping) if sleeping else None
        if step == "wake":
            waiters.wake("q", chance.randint(1, 3))
        elif step == "lost":
            for queue in waiters.queues():
                waiters.note_lost(queue)
            while waiters.wake_lost_part():
                pass
        elif step == "sweep":
            sweep_all(waiters)
        elif waiter is None:
            continue
        elif step == "remove":
            sleeping.remove(waiter)
            waiters.remove(waiter)
        else:
            waiters.consume(waiter)
            if not waiter.where or step != "forward":
                # No wake-up is given to a waiter until the search ends.
                continue
            waiters.forward(waiter)
        assert not may_use_a_wakeup_that_is_left(waiters)


def may_use_a_wakeup_that_is_left(waiters: WaitList) -> bool:
    """Return whether a waiter may use a wake-up that no waiter holds."""
    line = waiters._queues.get("q")
    if line is None or line.unassigned <= 0:
        return False
    idle = [waiter for waiter in line.waiters() if not waiter.woken and not waiter.holds_wakeup]
    groups = [line.groups[waiter.where] for waiter in idle]
    return any(
        not group.has_filter or (group.searched < line.announcements and group.searches < group.width)
        for group in groups
    )
