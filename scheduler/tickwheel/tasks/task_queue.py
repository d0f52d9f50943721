"""What an app says of a queue: how workers take from it, and the configuration that it is created with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tickwheel import limits
from tickwheel.model import validation
from tickwheel.tasks.queue_selectors import check_weight


@dataclass(frozen=True)
class TaskQueue:
    """``weight`` is its tickets in the lottery, 1 to 100. A worker takes ``batch`` messages at a time, up to
    ``iterations`` times before it chooses again, and waits ``long_poll`` at a queue that it found empty.

    All tasks of a queue should be about as urgent and take about as long. ``config`` is that of `create_queue`:
    ``lease``, ``max_attempts``, ``exclusive_key`` and so on.
    """

    name: str
    weight: int = 50
    batch: int = 10
    long_poll: timedelta = timedelta(seconds=1)
    iterations: int = 5
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        validation.plain_name("a queue's name", self.name)
        check_weight(self.name, self.weight)
        validation.integer("batch", self.batch, 1, MAX_BATCH)
        validation.duration_ms("long_poll", self.long_poll, 0, limits.WAIT_MS_MAX)
        validation.integer("iterations", self.iterations, 1, 10_000)


# A worker holds the leases of a whole batch.
MAX_BATCH = 250
