"""The waiter of a call that waits for several queues: one announcement wakes one call, and none is lost.

The model has queues with messages, and calls that search them as `MessageWait` does. Hypothesis draws announcements,
searches, ends and sweeps in any order. When no call has anything left to do, none may sleep at a queue with messages.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings, strategies as st

from tests.support.sweep import sweep_all
from tickwheel.redis.wait_line import JointWaiter, Line, Waiter
from tickwheel.redis.wait_list import WaitList

pytestmark = pytest.mark.unit

QUEUES = ("a", "b", "c")


class JointCall:
    """A call that waits for several queues, and takes one message of one of them."""

    def __init__(self, model: "Model", queues: Sequence[str]) -> None:
        self._model = model
        self.queues = queues
        self.is_notified = False
        self.is_asleep = False
        self._joint: JointWaiter = model.waiters.add_joint(queues, self._notify)
        # The call checks all queues when it begins.
        self._searches: list[str] | None = None

    def _notify(self) -> None:
        self.is_notified = True
        self._model.notified.append(self)

    @property
    def can_step(self) -> bool:
        return not self.is_asleep or self.is_notified

    def step(self) -> None:
        """Take the next step of the call: check, search, sleep or wake."""
        waiters, messages = self._model.waiters, self._model.messages
        if self.is_asleep:
            self.is_asleep = self.is_notified = False
            self._read_announcements()
        elif self._searches is None:
            self._searches = [queue for queue in self.queues if messages[queue]]
        elif self._searches:
            queue = self._searches.pop()
            waiters.consume(self._joint.members[queue])
            if messages[queue]:
                messages[queue] -= 1
                self.end()
        elif waiters.may_sleep(self._joint):
            self.is_asleep = True
        else:
            self._read_announcements()

    def _read_announcements(self) -> None:
        self._searches, is_swept = self._model.waiters.announced(self._joint)
        if is_swept:
            self._searches += [queue for queue in self.queues if self._model.messages[queue]]

    def end(self) -> None:
        self._model.waiters.remove_joint(self._joint)
        self._model.calls.remove(self)


class SingleCall:
    """A dequeue of one queue that waits."""

    def __init__(self, model: "Model", queue: str) -> None:
        self._model = model
        self.queues = [queue]
        self.is_notified = False
        self.is_asleep = False
        self._waiter: Waiter = model.waiters.add(queue, self._notify)

    def _notify(self) -> None:
        self.is_notified = True
        self._model.notified.append(self)

    @property
    def can_step(self) -> bool:
        return not self.is_asleep or self.is_notified

    def step(self) -> None:
        """Search, and sleep if the queue is empty."""
        if self.is_asleep:
            self.is_asleep = self.is_notified = False
            self._model.waiters.consume(self._waiter)
        if self._model.messages[self.queues[0]]:
            self._model.messages[self.queues[0]] -= 1
            self.end()
        else:
            self.is_asleep = True

    def end(self) -> None:
        self._model.waiters.remove(self._waiter)
        self._model.calls.remove(self)


class Model:
    def __init__(self) -> None:
        self.waiters = WaitList()
        self.messages: Counter[str] = Counter()
        self.calls: list[JointCall | SingleCall] = []
        self.notified: list[JointCall | SingleCall] = []
        # Messages that are ready, and whose announcement has not arrived yet.
        self.unannounced: list[tuple[str, int]] = []

    def act(self, kind: str, queue: str, number: int) -> None:
        """Do what hypothesis has drawn."""
        if kind == "arrival":
            self.messages[queue] += 1
            self.announce((queue, 1))
        elif kind == "joint":
            self.calls.append(JointCall(self, QUEUES[number % 2 :]))
        elif kind == "single":
            self.calls.append(SingleCall(self, queue))
        elif kind == "ready":
            self.messages[queue] += 1 + number % 2
            self.unannounced.append((queue, 1 + number % 2))
        elif kind == "announce" and self.unannounced:
            self.announce(self.unannounced.pop(number % len(self.unannounced)))
        elif kind == "step" and self.calls:
            call = self.calls[number % len(self.calls)]
            if call.can_step:
                call.step()
        elif kind == "cancel" and self.calls:
            self.calls[number % len(self.calls)].end()
        elif kind == "rest":
            self.rest()
        elif kind == "sweep":
            sweep_all(self.waiters)

    def announce(self, announcement: tuple[str, int]) -> None:
        """Announce messages, and check that at most one call is woken for each."""
        self.notified.clear()
        self.waiters.wake(*announcement)
        assert len(self.notified) == len(set(self.notified)) <= announcement[1]

    def settle(self) -> None:
        """Let all announcements arrive, and let the calls rest. Check that no message waits for a call that sleeps."""
        while self.unannounced:
            self.announce(self.unannounced.pop())
        self.rest()
        waiting = {queue for call in self.calls for queue in call.queues}
        assert not [queue for queue in waiting if self.messages[queue]]

    def rest(self) -> None:
        """Let the calls act until all of them sleep."""
        for _ in range(10_000):
            active = [call for call in self.calls if call.can_step]
            if not active:
                return
            active[0].step()
        raise AssertionError("the calls do not come to rest")


# Sweeps hide that a wake-up was lost, so they are few.
KINDS = (*("arrival", "arrival", "joint", "step", "cancel") * 3, "single", "ready", "announce", "rest", "sweep")
ACTIONS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(QUEUES), st.integers(0, 59)), min_size=20, max_size=40
)


@settings(max_examples=300, deadline=None)
@given(ACTIONS)
def test_no_call_sleeps_at_a_queue_with_messages_whatever_happened_before(actions: list[tuple[str, str, int]]) -> None:
    model = Model()
    for n, action in enumerate(actions):
        if n % 10 == 0:
            # Some calls sleep at the empty queues.
            model.messages.clear()
            model.calls += [JointCall(model, QUEUES) for _ in range(3 - len(model.calls))]
            model.rest()
        model.act(*action)
        if n % 10 == 9:
            model.settle()
    model.settle()


class Woken:
    """Joint waiters by name, and the names of those that were notified."""

    def __init__(self, queues: str, *names: str) -> None:
        self.list = WaitList()
        self.names: list[str] = []
        self.by_name = {name: self.list.add_joint(queues, self._callback(name)) for name in names}

    def _callback(self, name: str) -> Callable[[], None]:
        return lambda: self.names.append(name)


def test_a_joint_waiter_that_is_woken_for_one_queue_leaves_the_announcements_of_the_others_to_other_waiters() -> None:
    woken = Woken("abc", "first", "second")

    for queue in "abc":
        woken.list.wake(queue, 1)

    assert woken.names == ["first", "second"]


def test_a_joint_waiter_that_leaves_before_its_search_passes_the_wake_up_on() -> None:
    woken = Woken("ab", "first", "second")
    woken.list.wake("a", 1)

    woken.list.remove_joint(woken.by_name["first"])

    assert woken.names == ["first", "second"]


def test_a_wake_up_that_was_used_for_a_search_is_not_passed_on() -> None:
    woken = Woken("ab", "first", "second")
    woken.list.wake("a", 1)
    woken.list.consume(woken.by_name["first"].members["a"])

    woken.list.remove_joint(woken.by_name["first"])

    assert woken.names == ["first"]


def test_a_joint_waiter_searches_the_queues_that_it_missed_before_it_sleeps_again() -> None:
    woken = Woken("abc", "only")
    only = woken.by_name["only"]
    woken.list.wake("a", 1)
    woken.list.wake("b", 1)
    assert woken.list.announced(only) == (["a"], False)
    woken.list.consume(only.members["a"])

    assert not woken.list.may_sleep(only)
    assert woken.list.announced(only) == (["b"], False)
    assert woken.list.may_sleep(only)


def test_a_joint_waiter_that_was_idle_does_not_search_for_announcements_that_went_to_others() -> None:
    woken = Woken("ab", "first", "second")
    first, second = woken.by_name.values()
    woken.list.wake("b", 1)
    woken.list.wake("a", 1)
    woken.list.consume(second.members["a"])

    assert woken.names == ["first", "second"]
    assert woken.list.may_sleep(second)
    assert not woken.list.may_sleep(first)


def test_a_sweep_wakes_one_joint_waiter_for_all_of_its_queues() -> None:
    woken = Woken("abc", "first", "second")

    sweep_all(woken.list)

    assert set(woken.names) == {"first"}
    assert woken.list.announced(woken.by_name["first"]) == ([], True)
    assert woken.list.announced(woken.by_name["second"]) == ([], False)


def test_all_queues_are_searched_after_a_connection_was_lost() -> None:
    woken = Woken("abc", "only")
    only = woken.by_name["only"]

    for queue in woken.list.queues():
        woken.list.note_lost(queue)
    while woken.list.wake_lost_part():
        pass

    [queue] = woken.list.announced(only)[0]
    woken.list.consume(only.members[queue])
    assert not woken.list.may_sleep(only)
    assert {queue, *woken.list.announced(only)[0]} == {"a", "b", "c"}


def test_all_queues_are_searched_at_the_end_of_all_waits_so_that_the_call_gets_the_error() -> None:
    woken = Woken("abc", "only")

    woken.list.wake_all()

    assert not woken.list.may_sleep(woken.by_name["only"])
    assert woken.list.announced(woken.by_name["only"])[0] == ["a", "b", "c"]


def test_a_joint_waiter_counts_as_one_waiter_until_it_leaves() -> None:
    woken = Woken("ab", "only")
    assert woken.list.has_waiter("b")
    assert woken.list.count() == 1
    woken.list.remove_joint(woken.by_name["only"])
    assert not woken.list.has_waiter("b")
    assert woken.list.count() == 0


def test_a_wake_up_that_a_joint_waiter_does_not_use_for_two_sweeps_goes_to_another_waiter() -> None:
    woken = Woken("ab", "first", "second")
    woken.list.wake("a", 1)

    sweep_all(woken.list)
    woken.list.announced(woken.by_name["second"])
    sweep_all(woken.list)

    assert woken.names[0] == "first"
    assert woken.list.announced(woken.by_name["second"])[0] == ["a"]
    assert woken.list.announced(woken.by_name["first"])[0] == []


def test_a_joint_waiter_that_lost_its_wake_up_to_no_other_waiter_searches_the_queue_before_it_sleeps() -> None:
    woken = Woken("ab", "only")
    woken.list.wake("a", 1)
    for _ in range(2):
        sweep_all(woken.list)
    only = woken.by_name["only"]
    woken.list.announced(only)

    assert not woken.list.may_sleep(only)
    assert woken.list.announced(only)[0] == ["a"]


def test_a_sweep_visits_only_the_waiters_that_hold_a_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    woken = Woken("abc", *map(str, range(100)))
    visited: list[Line] = []

    def waiters(line: Line) -> Iterator[Waiter]:
        visited.append(line)
        return iter(())

    monkeypatch.setattr(Line, "waiters", waiters)
    sweep_all(woken.list)
    assert visited == []


def test_a_call_that_was_woken_for_another_queue_is_passed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 200
    passed = 0
    is_eligible = Waiter.is_eligible

    def count_and_check(waiter: Waiter) -> bool:
        nonlocal passed
        passed += 1
        return bool(is_eligible.__get__(waiter))

    waiters = WaitList()
    woken: list[None] = []
    for _ in range(calls):
        waiters.add_joint(QUEUES, lambda: woken.append(None))
    monkeypatch.setattr(Waiter, "is_eligible", property(count_and_check))
    waiters.wake("a", calls // 2)
    passed = 0

    for _ in range(calls // 2):
        waiters.wake("b", 1)

    assert (len(woken), passed) == (calls, calls)
