"""The declaration of a queue in an app: how workers take messages from the queue, and its configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tickwheel import limits
from tickwheel.model import queue_config, validation
from tickwheel.model.validation import Duration

MAX_WEIGHT = 100
# A declared back-off may fit only the other back-off that the queue already has. So the declaration is checked against
# a queue whose back-offs allow every value.
ANY_BACKOFF = queue_config.QueueConfig(backoff_ms=0, backoff_max_ms=limits.RETENTION_MS_MAX)


@dataclass(frozen=True)
class TaskQueue:
    """The declaration of one queue.

    By default, workers choose a queue by a weighted lottery (see `worker.selectors`): ``weight``, 1 to 100, is the
    number of tickets of the queue. A worker that has chosen the queue takes batches of at most ``batch`` messages (1 to
    250). After ``iterations`` batches, it chooses again. If all its queues are empty, the worker waits for all of them,
    for up to the longest ``long_poll``, and then chooses again. ``long_poll`` is a timedelta or a number of seconds.
    ``config`` has the settings of `create_queue`: ``lease``, ``max_attempts`` and so on.

    The tasks of a queue should be about equally urgent and take about equally long. Raises InvalidArgument.
    """

    name: str
    weight: int = 50
    batch: int = 10
    long_poll: Duration = timedelta(seconds=1)
    iterations: int = 5
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        validation.plain_name("a queue's name", self.name)
        check_weight(self.name, self.weight)
        validation.integer("batch", self.batch, 1, MAX_BATCH)
        validation.duration_ms("long_poll", self.long_poll, 0, limits.WAIT_MS_MAX)
        validation.integer("iterations", self.iterations, 1, 10_000)
        validation.instance("config", self.config, Mapping, "pass the settings of create_queue")  # type: ignore[type-abstract]
        queue_config.parse(self.config, ANY_BACKOFF)


# The maximum of ``batch``. The state of a batch in the worker's shared memory has a fixed size.
MAX_BATCH = 250


def check_weight(name: str, weight: int) -> None:
    """Raise InvalidArgument if the weight is not a whole number from 1 to 100."""
    validation.integer(f"the weight of queue {name!r}", weight, 1, MAX_WEIGHT)
