"""The queue selectors of workers: the share and the order of queues, and that no queue starves."""

import random
from collections import Counter

import pytest

from tests.support.tickets import Tickets, shares
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


HIGH, MIDDLE, LOW = Tickets("high", 100), Tickets("middle", 40), Tickets("low", 5)
ALL = (HIGH, MIDDLE, LOW)


def drawn_shares(selector: QueueSelector[Tickets], busy: set[Tickets], draws: int = DRAWS) -> dict[str, float]:
    counted = Counter(selected(selector, busy.__contains__).name for _ in range(draws))
    return {name: count / draws for name, count in counted.items()}


@pytest.mark.parametrize("kind", [ReducedLottery, Lottery])
def test_shares_are_those_of_the_tickets_within_2_percent_of_all_draws(kind: type[QueueSelector[Tickets]]) -> None:
    assert drawn_shares(kind(ALL, random.Random(1)), set(ALL)) == pytest.approx(shares(ALL), abs=0.02)


@pytest.mark.parametrize("kind", [ReducedLottery, Lottery])
def test_in_the_long_run_each_queue_has_within_2_percent_of_its_own_share(kind: type[QueueSelector[Tickets]]) -> None:
    """In 10^5 draws the share of the smallest queue deviates by up to 5 percent by chance, in 10^6 by less than 2."""
    assert drawn_shares(kind(ALL, random.Random(1)), set(ALL), 10 * DRAWS) == pytest.approx(shares(ALL), rel=0.02)


def test_an_empty_queue_is_excluded_from_the_draw() -> None:
    assert drawn_shares(ReducedLottery(ALL, random.Random(2)), {MIDDLE, LOW}) == pytest.approx(
        shares({MIDDLE, LOW}), abs=0.02
    )


def test_with_all_queues_empty_the_shares_are_those_of_the_tickets() -> None:
    assert drawn_shares(ReducedLottery(ALL, random.Random(3)), set()) == pytest.approx(shares(ALL), abs=0.02)


def test_each_queue_is_checked_at_most_once_a_draw() -> None:
    selector, checks = ReducedLottery(ALL, random.Random(4)), Counter[str]()

    def is_empty(queue: Tickets) -> bool:
        checks[queue.name] += 1
        return False

    for _ in range(100):
        selected(selector, is_empty)
    assert checks == {"high": 100, "middle": 100, "low": 100}


@pytest.mark.parametrize("busy", [{LOW, MIDDLE, HIGH}, {LOW, HIGH}, {LOW}], ids=["all", "two", "alone"])
def test_the_queue_with_the_smallest_weight_waits_no_longer_than_its_limit(busy: set[Tickets]) -> None:
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
    assert [drawn_shares(selector, busy, 10) for busy in (set(ALL), {LOW, MIDDLE}, {LOW}, set[Tickets]())] == [
        {"high": 1.0},
        {"middle": 1.0},
        {"low": 1.0},
        {"high": 1.0},
    ]


def test_highest_priority_lottery_draws_among_the_others_only_if_the_heaviest_is_empty() -> None:
    selector = HighestPriorityLottery(ALL, random.Random(7))
    assert drawn_shares(selector, set(ALL), 10) == {"high": 1.0}
    assert drawn_shares(selector, {MIDDLE, LOW}) == pytest.approx(shares({MIDDLE, LOW}), abs=0.02)
    assert drawn_shares(selector, set()) == pytest.approx(shares(ALL), abs=0.02)


def test_the_selector_random_ignores_weights() -> None:
    assert drawn_shares(Random(ALL, random.Random(8)), set(ALL)) == pytest.approx(
        {"high": 1 / 3, "middle": 1 / 3, "low": 1 / 3}, abs=0.02
    )


def test_a_selector_of_a_user_may_return_a_queue() -> None:
    class Last(QueueSelector[Tickets]):
        def select_queue(self) -> Tickets:
            return self.queues[-1]

    assert selected(Last(ALL), lambda _: False) is LOW


@pytest.mark.parametrize("weight", [0, 101, -5, 1.5, True, "5"], ids=repr)
@pytest.mark.parametrize("name", SELECTORS)
def test_an_invalid_weight_is_refused(name: str, weight: object) -> None:
    with pytest.raises(InvalidArgument, match="from 1 to 100"):
        SELECTORS[name]([Tickets("mail", weight)])  # type: ignore[arg-type]


def test_an_empty_list_of_queues_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least one queue"):
        ReducedLottery[Tickets]([])
