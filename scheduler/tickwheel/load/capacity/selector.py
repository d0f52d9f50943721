"""Selectors of simulated workers: the selectors of real workers, with the weights of the scenario."""

from collections.abc import Iterable
from random import Random
from typing import cast

from tickwheel.load.scenario.scenario import QueueLoad, WorkerGroup
from tickwheel.worker.selectors import SELECTORS, QueueSelector


def make_selector(
    group: WorkerGroup, queues: Iterable[QueueLoad], random: Random | None = None
) -> QueueSelector[QueueLoad]:
    """Return a selector for the queues of the group, of the kind that the group sets."""
    selector_class = cast(type[QueueSelector[QueueLoad]], SELECTORS[group.selector])
    return selector_class([queue for queue in queues if queue.name in group.queues], random)
