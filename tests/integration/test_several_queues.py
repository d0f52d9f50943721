"""The dequeue of several queues: it waits for all of them at once, and takes a batch of one of them."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from math import sqrt
from typing import Any

import pytest

from tests.support.several_queues import LONG_S, NAMES, Caller
from tests.support.tickets import Tickets, shares
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.several_queues.message_wait import MessageWait
from tickwheel.redis.wait_list import WaitList
from tickwheel.worker.selectors import QueueSelector, Selection

pytestmark = pytest.mark.integration

DRAWS = 2_000
# How far a share may be from its mean, in standard deviations of the binomial distribution. Chance alone exceeds this
# once in 500 million tests.
DEVIATIONS_MAX = 6


class Calls:
    """What the calls of this process do, also those of the service in its thread."""

    def __init__(self) -> None:
        self.checks = self.sleeps = 0
        self.dequeues: list[str] = []


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Count checks, dequeues and sleeps. Only announcements end a sleep: there is no sweep."""
    counted = Calls()
    check, may_sleep, plan = MessageWait._check, WaitList.may_sleep, Dequeue.plan

    def counted_check(wait: MessageWait) -> Any:
        counted.checks += 1
        return check(wait)

    def counted_sleep(waiters: WaitList, joint: Any) -> bool:
        sleeps = may_sleep(waiters, joint)
        counted.sleeps += sleeps
        return sleeps

    def counted_dequeue(dequeue: Dequeue, factory: Any) -> Any:
        counted.dequeues.append(dequeue._queue)
        return plan(dequeue, factory)

    monkeypatch.setattr(MessageWait, "_check", counted_check)
    monkeypatch.setattr(WaitList, "may_sleep", counted_sleep)
    monkeypatch.setattr(WaitList, "begin_sweep", lambda _: None)
    monkeypatch.setattr(Dequeue, "plan", counted_dequeue)
    return counted


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def _queues(tw: Tickwheel) -> None:
    for name in NAMES:
        tw.create_queue(name)


@pytest.fixture
def caller(tw: Tickwheel, request: pytest.FixtureRequest) -> Caller:
    """A caller that has found all queues empty."""
    request.getfixturevalue("_queues")
    caller = Caller(tw)
    assert caller.take()[1] == []
    assert caller.several.is_idle
    return caller


@pytest.fixture
def begin(calls: Calls, threads: ThreadPoolExecutor) -> Callable[[Caller], "Future[tuple[str, list[str]]]"]:
    """Return a function that begins a call in a thread, and returns when the call sleeps."""

    def begin_call(caller: Caller) -> "Future[tuple[str, list[str]]]":
        before = calls.sleeps
        future = threads.submit(caller.take, LONG_S)
        eventually(lambda: calls.sleeps > before or future.done(), "the call sleeps")
        return future

    return begin_call


@pytest.mark.parametrize("name", NAMES)
def test_a_message_of_any_queue_wakes_the_call_without_another_poll(
    name: str, tw: Tickwheel, caller: Caller, calls: Calls, begin: Any
) -> None:
    waiting = begin(caller)
    checks, dequeues = calls.checks, len(calls.dequeues)

    tw.queue(name).enqueue(id="m")

    assert waiting.result(LONG_S) == (name, ["m"])
    assert (calls.checks, calls.dequeues[dequeues:]) == (checks, [name])


def test_a_message_from_before_the_wait_is_found_when_the_wait_begins(
    tw: Tickwheel, caller: Caller, calls: Calls
) -> None:
    tw.queue("green").enqueue(id="m")
    calls.dequeues.clear()

    assert caller.take(LONG_S) == ("green", ["m"])

    assert calls.dequeues == ["green"]


def test_a_call_on_empty_queues_costs_one_check_for_all_of_them(caller: Caller, calls: Calls) -> None:
    calls.checks = 0
    calls.dequeues.clear()

    assert caller.take(0.2)[1] == []

    assert (calls.checks, calls.dequeues) == (1, [])
    assert caller.several.is_idle


@pytest.mark.usefixtures("_queues")
def test_a_call_leases_one_batch_of_one_queue_and_nothing_else(tw: Tickwheel) -> None:
    for name in NAMES:
        tw.queue(name).enqueue_many(NewMessage() for _ in range(5))

    name, ids = Caller(tw, limit=2).take()

    assert len(ids) == 2
    running = {queue: tw.queue(queue).counts()["running"] for queue in NAMES}
    assert running == dict.fromkeys(NAMES, 0) | {name: 2}


@pytest.mark.usefixtures("_queues")
def test_the_shares_of_the_queues_are_those_of_their_tickets(tw: Tickwheel) -> None:
    # `make bench` makes 100,000 draws, with a bound of 2 %.
    queues = [Tickets(name, weight) for name, weight in zip(NAMES, (100, 40, 20), strict=True)]
    for name in NAMES:
        for _ in range(4):
            tw.queue(name).enqueue_many(NewMessage() for _ in range(DRAWS // 4))
    caller, drawn = Caller(tw, queues), Counter[str]()

    for _ in range(DRAWS):
        name, [_id] = caller.take()
        drawn[name] += 1

    for name, share in shares(queues).items():
        assert abs(drawn[name] - DRAWS * share) <= DEVIATIONS_MAX * sqrt(DRAWS * share * (1 - share)), drawn


class Last(QueueSelector[Tickets]):
    """Asks about all queues, and chooses the last."""

    def select_queue(self) -> Selection[Tickets]:
        for queue in self.queues:  # noqa: UP028  # `yield from` a tuple fails on send()
            yield queue
        return self.queues[-1]


@pytest.mark.usefixtures("_queues")
def test_messages_of_queues_that_the_selector_did_not_choose_are_released(tw: Tickwheel) -> None:
    for name in NAMES:
        tw.queue(name).enqueue(id=name)

    assert Caller(tw, selector=Last).take() == ("blue", ["blue"])

    assert [tw.queue(name).counts()["running"] for name in NAMES] == [0, 0, 1]
    assert tw.queue("red").get("red").attempt == 0


def test_two_calls_that_wait_for_the_same_queues_share_their_messages(
    tw: Tickwheel, caller: Caller, calls: Calls, begin: Any
) -> None:
    first = begin(caller)
    second = begin(Caller(tw))

    tw.queue("red").enqueue(id="m1")
    tw.queue("blue").enqueue(id="m2")

    assert sorted([first.result(LONG_S), second.result(LONG_S)]) == [("blue", ["m2"]), ("red", ["m1"])]


def test_a_dequeue_of_one_queue_gets_what_a_call_for_several_queues_leaves(
    tw: Tickwheel, caller: Caller, calls: Calls, begin: Any, threads: ThreadPoolExecutor
) -> None:
    waiting = begin(caller)
    tw.queue("red").enqueue_many(NewMessage() for _ in range(2))

    assert waiting.result(LONG_S)[0] == "red"
    assert len(Caller(tw).take(LONG_S)[1]) == 1


def test_a_blocked_queue_costs_no_dequeue_and_is_noticed_when_it_is_unblocked(
    tw: Tickwheel, caller: Caller, calls: Calls, begin: Any
) -> None:
    blocked = tw.queue("red")
    blocked.block(enqueue=False, dequeue=True)
    calls.dequeues.clear()
    waiting = begin(caller)

    blocked.enqueue(id="m1")
    tw.queue("blue").enqueue(id="m2")

    assert waiting.result(LONG_S) == ("blue", ["m2"])
    assert calls.dequeues == ["blue"]
    blocked.unblock(enqueue=False, dequeue=True)
    assert caller.take(LONG_S) == ("red", ["m1"])


def test_a_queue_that_is_created_during_the_wait_is_noticed(
    tw: Tickwheel, caller: Caller, calls: Calls, begin: Any
) -> None:
    late = Caller(tw, [*map(Tickets, NAMES), Tickets("late")])
    assert late.take()[1] == []
    tw.create_queue("late").enqueue(id="m")

    assert late.take(LONG_S) == ("late", ["m"])


def test_a_call_ends_when_the_wait_is_over(caller: Caller) -> None:
    assert caller.take(0.01)[1] == []
