"""The documented place of the queue selectors; they are in `tickwheel.tasks.queue_selectors`."""

from tickwheel.tasks.queue_selectors import (
    MAX_WEIGHT as MOST_WEIGHT,
)
from tickwheel.tasks.queue_selectors import (
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
)
from tickwheel.tasks.queue_selectors import (
    select as selected,
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
