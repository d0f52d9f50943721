"""The documented place of the queue selectors; they are in `tickwheel.tasks.queue_selectors`."""

from tickwheel.tasks.queue_selectors import (
    MOST_WEIGHT,
    SELECTORS,
    HighestPriorityFirst,
    HighestPriorityLottery,
    Lottery,
    QueueSelector,
    Random,
    ReducedLottery,
    Selection,
    Weighted,
    check_weight,
    selected,
)

__all__ = [
    "MOST_WEIGHT",
    "SELECTORS",
    "HighestPriorityFirst",
    "HighestPriorityLottery",
    "Lottery",
    "QueueSelector",
    "Random",
    "ReducedLottery",
    "Selection",
    "Weighted",
    "check_weight",
    "selected",
]
