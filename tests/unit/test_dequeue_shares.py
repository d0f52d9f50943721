"""The share of each queue in the dequeues of a worker with several queues, in memory: no server takes part."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support.tickets import Tickets, shares
from tickwheel.errors import LeaseLost, QueueBlocked, TickwheelError, Unavailable
from tickwheel.model.message import LeasedMessage
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.operations.several_queues.dequeue_several import SeveralQueues
from tickwheel.plan import Pause, Plan, PlanRun
from tickwheel.worker.selectors import ReducedLottery

pytestmark = pytest.mark.unit

DRAWS = 100_000


HIGH, MIDDLE, LOW = Tickets("high", 100), Tickets("middle", 40), Tickets("low", 20)
ALL = (HIGH, MIDDLE, LOW)


class Wait:
    """Announces the given queues, one set at each step."""

    def __init__(self, announced: list[list[str]]) -> None:
        self._announced = announced
        self.searched: list[str] = []
        self.has_ended = False

    def next(self, until: float) -> Plan[list[str] | None]:
        yield Pause(0)
        return self._announced.pop(0) if self._announced else []

    def begin_search(self, queue: str) -> None:
        self.searched.append(queue)

    def end(self) -> Plan[None]:
        yield Pause(0)
        self.has_ended = True


class Queues:
    """The operations of a backend whose queues hold numbers of messages. A message is its queue's name."""

    def __init__(self, messages: Mapping[str, int], announced: Sequence[list[str]] = (), blocked: str = "") -> None:
        self.messages = Counter(messages)
        self.dequeues: list[str] = []
        self.released: list[str] = []
        self.release_error: TickwheelError | None = None
        self.wait = Wait(list(announced))
        self._blocked = blocked

    def dequeue(self, queue: str, options: DequeueOptions, kind: Any) -> Plan[list[Any]]:
        yield Pause(0)
        self.dequeues.append(queue)
        if queue == self._blocked:
            raise QueueBlocked(queue)
        count = min(self.messages[queue], options.limit)
        self.messages[queue] -= count
        return [queue] * count

    def release(self, messages: Sequence[Any]) -> Plan[None]:
        yield Pause(0)
        if self.release_error is not None:
            raise self.release_error
        self.released += messages

    def message_wait(self, queues: Sequence[str]) -> Wait:
        return self.wait


def several(select: Any = None, limit: int = 1, **observers: Any) -> SeveralQueues[Tickets, Any]:
    return SeveralQueues(
        {queue.name: DequeueOptions.parse(limit) for queue in ALL},
        select or ReducedLottery(ALL, random.Random(1)).select_queue,
        LeasedMessage,
        **observers,
    )


def run(plan: Plan[Any]) -> Any:
    """Run a plan whose steps have no answers."""
    plan_run = PlanRun(plan, "redis://here")
    while plan_run.next_step() is not None:
        pass
    return plan_run.result


def test_the_shares_are_those_of_the_tickets_within_2_percent_of_the_draws() -> None:
    queues, worker = Queues(dict.fromkeys((queue.name for queue in ALL), DRAWS)), several()
    drawn = Counter(run(worker.plan(queues, 0)).queue.name for _ in range(DRAWS))
    assert {name: count / DRAWS for name, count in drawn.items()} == pytest.approx(shares(ALL), abs=0.02)


def test_the_shares_of_announced_queues_are_those_of_the_tickets_within_2_percent_of_the_draws() -> None:
    """Each draw follows a wait, and one queue is always empty."""
    drawn: Counter[str] = Counter()
    worker, announced = several(), ["high", "low"]
    for _ in range(DRAWS // 4):
        queues = Queues({})
        run(worker.plan(queues, 0))
        queues = Queues({"high": 2, "low": 2}, [announced])
        drawn[run(worker.plan(queues, 9)).queue.name] += 1
        assert len(queues.dequeues) == 1
    total = drawn.total()
    assert {name: count / total for name, count in drawn.items()} == pytest.approx(shares((HIGH, LOW)), abs=0.02)


def test_an_empty_queue_is_not_asked_again_before_it_is_announced() -> None:
    queues, worker = Queues({}, [["low"], ["low", "high"]]), several()
    assert run(worker.plan(queues, 0)).messages == []
    assert sorted(queues.dequeues) == ["high", "low", "middle"]
    queues.dequeues.clear()

    assert run(worker.plan(queues, 9)).messages == []

    assert queues.dequeues[0] == "low"
    assert sorted(queues.dequeues[1:]) == ["high", "low"]
    assert queues.wait.searched == queues.dequeues
    assert queues.wait.has_ended


def test_a_blocked_queue_is_not_asked_at_each_turn() -> None:
    queues, worker = Queues({"low": 100}, blocked="high"), several()
    for _ in range(20):
        run(worker.plan(queues, 0))
    assert queues.dequeues.count("high") == 1


@pytest.mark.parametrize("error", [RuntimeError, KeyError, ValueError])
def test_the_messages_that_were_leased_for_a_selector_that_fails_are_released(error: type[Exception]) -> None:
    def select() -> Any:
        assert (yield HIGH)
        raise error("a bug of the selector")

    queues, worker = Queues({"high": 3}), several(select, limit=2)
    with pytest.raises(error, match="a bug"):
        run(worker.plan(queues, 0))
    assert queues.released == ["high", "high"]


@pytest.mark.parametrize("error", [Unavailable("no answer"), LeaseLost("lost")], ids=lambda error: type(error).__name__)
def test_the_messages_of_the_chosen_queue_are_returned_even_if_a_release_of_others_fails(error: TickwheelError) -> None:
    def select() -> Any:
        assert (yield LOW)
        assert (yield HIGH)
        return HIGH

    queues, unreleased = Queues({"high": 3, "low": 3}), list[tuple[str, int, TickwheelError]]()
    queues.release_error = error
    worker = several(select, limit=2, on_unreleased=lambda *args: unreleased.append((args[0], args[1], args[2])))
    assert run(worker.plan(queues, 0)).messages == ["high", "high"]
    assert unreleased == [("low", 2, error)]


def test_a_selector_that_asks_nothing_chooses_without_a_dequeue() -> None:
    queues, worker = Queues({"low": 1}), several(lambda: LOW)
    batch = run(worker.plan(queues, 9))
    assert (batch.queue, batch.messages, queues.dequeues) == (LOW, [], [])
    assert not worker.is_idle
    assert not queues.wait.has_ended


def test_a_worker_without_the_wait_of_the_service_asks_all_queues_again() -> None:
    queues, worker = Queues({}), several()
    run(worker.plan(queues, 0))
    queues.wait.next = lambda until: iter_none()  # type: ignore[method-assign]
    assert worker.is_idle
    run(worker.plan(queues, 9))
    assert not worker.is_idle


def test_a_worker_without_the_wait_of_the_service_waits_for_one_queue_even_if_all_are_blocked() -> None:
    queues, worker = Queues({}, blocked="high"), several(lambda: ask(HIGH))
    worker._options = {"high": DequeueOptions.parse()}
    run(worker.plan(queues, 0))
    queues.wait.next = lambda until: iter_none()  # type: ignore[method-assign]
    run(worker.plan(queues, 9))
    assert not worker.is_idle


def ask(queue: Tickets) -> Any:
    yield queue
    return queue


def iter_none() -> Plan[None]:
    yield Pause(0)
