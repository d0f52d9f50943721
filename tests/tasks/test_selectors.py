"""The queue selectors of workers: the share and the order of queues, and that no queue starves."""

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from tickwheel.errors import InvalidArgument
from tickwheel.worker.selectors import (
    SELECTORS,
    HighestPriorityFirst,
    HighestPriorityLottery,
    Lottery,
    QueueSelector,
    Random,
    ReducedLottery,
    selected,
)

pytestmark = pytest.mark.unit
DRAWS = 100_000


@dataclass(frozen=True)
class Queue:
    name: str
    weight: int


HIGH, MIDDLE, LOW = Queue("high", 100), Queue("middle", 40), Queue("low", 5)
ALL = (HIGH, MIDDLE, LOW)


def shares(selector: QueueSelector[Queue], busy: set[Queue], draws: int = DRAWS) -> dict[str, float]:
    counted = Counter(selected(selector, busy.__contains__).name for _ in range(draws))
    return {name: count / draws for name, count in counted.items()}


def tickets(queues: set[Queue] | tuple[Queue, ...]) -> dict[str, float]:
    return {queue.name: queue.weight / sum(other.weight for other in queues) for queue in queues}


@pytest.mark.parametrize("kind", [ReducedLottery, Lottery])
def test_shares_are_those_of_the_tickets_within_2_percent_of_all_draws(kind: type[QueueSelector[Queue]]) -> None:
    assert shares(kind(ALL, random.Random(1)), set(ALL)) == pytest.approx(tickets(ALL), abs=0.02)


@pytest.mark.parametrize("kind", [ReducedLottery, Lottery])
def test_in_the_long_run_each_queue_has_within_2_percent_of_its_own_share(kind: type[QueueSelector[Queue]]) -> None:
    """In 10^5 draws the share of the smallest queue deviates by up to 5 percent by chance, in 10^6 by less than 2."""
    assert shares(kind(ALL, random.Random(1)), set(ALL), 10 * DRAWS) == pytest.approx(tickets(ALL), rel=0.02)


def test_an_empty_queue_is_excluded_from_the_draw() -> None:
    assert shares(ReducedLottery(ALL, random.Random(2)), {MIDDLE, LOW}) == pytest.approx(
        tickets({MIDDLE, LOW}), abs=0.02
    )


def test_with_all_queues_empty_the_shares_are_those_of_the_tickets() -> None:
    assert shares(ReducedLottery(ALL, random.Random(3)), set()) == pytest.approx(tickets(ALL), abs=0.02)


def test_each_queue_is_checked_at_most_once_a_draw() -> None:
    selector, checks = ReducedLottery(ALL, random.Random(4)), Counter[str]()

    def is_empty(queue: Queue) -> bool:
        checks[queue.name] += 1
        return False

    for _ in range(100):
        selected(selector, is_empty)
    assert checks == {"high": 100, "middle": 100, "low": 100}


@pytest.mark.parametrize("busy", [{LOW, MIDDLE, HIGH}, {LOW, HIGH}, {LOW}], ids=["all", "two", "alone"])
def test_the_queue_with_the_smallest_weight_waits_no_longer_than_its_limit(busy: set[Queue]) -> None:
    selector, waits, waited = ReducedLottery(ALL, random.Random(5)), list[int](), 0
    for _ in range(DRAWS):
        waited += 1
        if selected(selector, busy.__contains__) is LOW:
            waits.append(waited)
            waited = 0
    chance = LOW.weight / sum(queue.weight for queue in ALL)
    assert sum(waits) / len(waits) <= 1.1 / chance
    for turns in (10, 50, 100, 200):
        longer = sum(wait > turns for wait in waits) / len(waits)
        assert longer <= (1 - chance) ** turns + 0.02


def test_highest_priority_first_takes_the_heaviest_queue_with_work() -> None:
    selector = HighestPriorityFirst(ALL, random.Random(6))
    assert [shares(selector, busy, 10) for busy in (set(ALL), {LOW, MIDDLE}, {LOW}, set[Queue]())] == [
        {"high": 1.0},
        {"middle": 1.0},
        {"low": 1.0},
        {"high": 1.0},
    ]


def test_highest_priority_lottery_draws_among_the_others_only_if_the_heaviest_is_empty() -> None:
    selector = HighestPriorityLottery(ALL, random.Random(7))
    assert shares(selector, set(ALL), 10) == {"high": 1.0}
    assert shares(selector, {MIDDLE, LOW}) == pytest.approx(tickets({MIDDLE, LOW}), abs=0.02)
    assert shares(selector, set()) == pytest.approx(tickets(ALL), abs=0.02)


def test_the_selector_random_ignores_weights() -> None:
    assert shares(Random(ALL, random.Random(8)), set(ALL)) == pytest.approx(
        {"high": 1 / 3, "middle": 1 / 3, "low": 1 / 3}, abs=0.02
    )


def test_a_selector_of_a_user_may_return_a_queue() -> None:
    class Last(QueueSelector[Queue]):
        def select_queue(self) -> Queue:
            return self.queues[-1]

    assert selected(Last(ALL), lambda _: False) is LOW


@pytest.mark.parametrize("weight", [0, 101, -5, 1.5, True, "5"], ids=repr)
@pytest.mark.parametrize("name", SELECTORS)
def test_an_invalid_weight_is_refused(name: str, weight: object) -> None:
    with pytest.raises(InvalidArgument, match="from 1 to 100"):
        SELECTORS[name]([Queue("mail", weight)])  # type: ignore[arg-type]


def test_an_empty_list_of_queues_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least one queue"):
        ReducedLottery[Queue]([])
