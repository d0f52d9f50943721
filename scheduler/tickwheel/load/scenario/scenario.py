"""The parts of a load: queues with their arrivals, and workers. This file does no I/O.

Times are seconds of the scenario's day, except where a docstring has "real time". A run divides them by ``speed_up``:
at 60, an hour takes a minute.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from tickwheel import limits
from tickwheel.load.scenario.arrival_rate import ArrivalRate
from tickwheel.load.scenario.distributions import ZERO, Distribution
from tickwheel.load.scenario.metadata_values import Values

# Minimum of a long poll in real time, because the speed-up does not shorten the response time of the server.
_LONG_POLL_MIN_S = 0.05


@dataclass(frozen=True, slots=True)
class Cancel:
    """The share of messages that are cancelled, and the time from enqueue to cancel."""

    share: float
    after: Distribution


@dataclass(frozen=True, slots=True)
class Urgency:
    """A priority class: its share of the messages, and the deadline relative to the due time (negative: earlier)."""

    share: float
    offset_s: float


@dataclass(frozen=True, slots=True)
class Polls:
    """Dequeue calls at fixed times, in addition to those of the workers, each for up to ``batch`` messages.

    ``together`` calls start at the same time, like those of a host that polls for all of its idle workers.
    """

    per_s: float
    batch: int
    together: int = 1


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """The load of one queue. Selectors of workers use ``name`` and ``weight``. ``lease_s`` is real time."""

    name: str
    weight: int = 40
    arrivals: ArrivalRate | None = None
    delay: Distribution = ZERO
    run: Distribution = ZERO
    batch: int = 10
    iterations: int = 5
    lease_s: float = limits.LEASE_MS / 1_000
    long_poll_s: float = 1.0
    failures: float = 0.0
    max_attempts: int = limits.MAX_ATTEMPTS
    backoff_s: float = limits.BACKOFF_MS / 1_000
    cancel: Cancel | None = None
    exclusive: Values | None = None
    metadata: Sequence[Values] = ()
    urgency: Sequence[Urgency] = ()
    payload_bytes: int = 200
    polls: Polls | None = None
    wait_target_s: float = 5.0
    """The target for the wait of a message. The number of workers needed is computed from it."""


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """Identical workers: ``processes`` workers on each of ``hosts`` hosts.

    A worker takes messages that match ``where`` from ``queues``.
    """

    name: str
    queues: Sequence[str]
    hosts: int = 1
    processes: int = 1
    where: Mapping[str, str] = field(default_factory=dict)
    selector: str = "reduced-lottery"
    scale: float = 1.0

    @property
    def count(self) -> int:
        return max(1, ceil(self.hosts * self.processes * self.scale - 1e-9))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a recording."""

    queue: str
    arrival_s: float
    run_s: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load. The seed determines its plan."""

    name: str
    queues: Sequence[QueueLoad]
    workers: Sequence[WorkerGroup]
    about: str = ""
    seed: int = 1
    start_s: float = 0.0
    length_s: float = 86_400.0
    drain_s: float = 3_600.0
    speed_up: float = 1.0
    scale: float = 1.0
    producer_batch: int = 1
    linger_s: float = 0.0
    """How long a message waits for others of its batch. In real time, like ``max_seconds`` and ``warm_up_s``."""
    max_seconds: float | None = None
    max_messages: int | None = None
    warm_up_s: float = 0.0
    """Latencies before this time are not recorded, because the start of a run is not representative."""
    recording: Sequence[Row] = ()

    @property
    def worker_count(self) -> int:
        return sum(group.count for group in self.workers)

    def queue(self, name: str) -> QueueLoad:
        return next(queue for queue in self.queues if queue.name == name)

    def to_real_s(self, seconds: float) -> float:
        """Convert a time of the scenario to real time."""
        return seconds / self.speed_up

    def long_poll(self, queue: QueueLoad) -> float:
        """Return how long a worker of the run waits at an empty queue, in real seconds."""
        return max(_LONG_POLL_MIN_S, self.to_real_s(queue.long_poll_s))

    def scaled(self, scale: float) -> "Scenario":
        """Multiply the numbers of messages, workers, generated exclusive values and polls by ``scale``."""
        if scale == 1:
            return self
        return replace(
            self,
            scale=self.scale * scale,
            queues=[_scaled(queue, scale) for queue in self.queues],
            workers=[replace(group, scale=group.scale * scale) for group in self.workers],
            max_messages=None if self.max_messages is None else max(1, round(self.max_messages * scale)),
        )


def _scaled(queue: QueueLoad, scale: float) -> QueueLoad:
    return replace(
        queue,
        arrivals=None if queue.arrivals is None else queue.arrivals.scaled(scale),
        exclusive=None if queue.exclusive is None else queue.exclusive.scaled(scale),
        polls=None if queue.polls is None else replace(queue.polls, per_s=queue.polls.per_s * scale),
    )


def default_workers(queues: Sequence[QueueLoad]) -> list[WorkerGroup]:
    """Return one worker for all queues, except queues that are polled at planned times."""
    names = [queue.name for queue in queues if queue.polls is None]
    return [WorkerGroup("workers", names)] if names else []


def with_workers(groups: Sequence[WorkerGroup], count: int) -> list[WorkerGroup]:
    """Distribute ``count`` workers over the groups in proportion to their size, with at least one for each group."""
    total, resized, left = sum(group.count for group in groups), [], count
    for n, group in enumerate(groups):
        others = len(groups) - n - 1
        share = left if not others else max(1, min(left - others, round(count * group.count / total)))
        resized.append(replace(group, hosts=1, processes=share, scale=1.0))
        left -= share
    return resized
