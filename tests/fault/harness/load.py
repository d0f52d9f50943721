"""What a run does to the product besides faults: its messages, and what workers do with each. Pure, from its seed."""

import hashlib
import random
from dataclasses import dataclass
from enum import Enum

PLAIN, EXCLUSIVE = "plain", "exclusive"
VALUE_KEY = "value"
LEASE_MS = 2_000
MAX_ATTEMPTS, POISON_ATTEMPTS = 12, 3
_DELAYS_MS = ((0, 0), (0, 0), (1, 100), (100, 1_500), (100, 1_500), (1_500, 3_000), (3_000, 6_000))
_BATCH = 10


class Afterwards(Enum):
    """What a producer does with a message before it is due."""

    NOTHING = "nothing"
    CANCEL = "cancel"
    RESCHEDULE = "reschedule"


class Handling(Enum):
    """What a worker does with a message it has."""

    COMPLETE = "complete"
    FAIL = "fail"
    EXTEND = "extend"
    OVERSTAY = "overstay"
    """Keep it past the lease, then complete it."""
    DIE = "die"


@dataclass(frozen=True, slots=True)
class Load:
    """How much, and of what kind. ``rate`` is messages a second of all producers together; ``poisoned`` of a thousand
    messages kill every worker that takes them.
    """

    seed: int
    seconds: float
    rate: int = 500
    producers: int = 2
    workers: int = 3
    shards: int = 2
    values: int = 40
    poisoned: int = 0

    def batches(self, producer: str) -> int:
        """How many batches a producer enqueues."""
        return max(1, int(self.seconds * self.rate / self.producers / _BATCH))

    def batch(self, producer: str, number: int) -> tuple[float, list[str]]:
        """When a producer's batch is due, in seconds from the start, and the ids in it."""
        ids = [f"{producer}-{n}" for n in range(number * _BATCH, (number + 1) * _BATCH)]
        return number * _BATCH * self.producers / self.rate, ids


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """All about one message."""

    id: str
    queue: str
    value: str | None
    delay_ms: int
    poisoned: bool
    payload: bytes
    afterwards: Afterwards
    new_delay_ms: int

    @property
    def max_attempts(self) -> int | None:
        """Its own limit, where it has one."""
        return POISON_ATTEMPTS if self.poisoned else None


def plan_message(load: Load, id: str) -> PlannedMessage:
    """The message of an id: anybody who knows the load knows it."""
    chance = _chance(load.seed, id)
    poisoned = chance.random() * 1000 < load.poisoned
    queue = EXCLUSIVE if chance.random() < 0.4 and not poisoned else PLAIN
    value = f"v{chance.randrange(load.values)}" if queue == EXCLUSIVE else None
    delay_ms = chance.randint(*chance.choice(_DELAYS_MS))
    afterwards = Afterwards.NOTHING
    if delay_ms >= 1_500 and not poisoned:
        afterwards = chance.choice([Afterwards.NOTHING, Afterwards.NOTHING, Afterwards.CANCEL, Afterwards.RESCHEDULE])
    payload = hashlib.sha256(f"{load.seed}/{id}".encode()).digest() * chance.choice([1, 1, 1, 8, 64])
    new_delay_ms = chance.randint(0, 3_000)
    return PlannedMessage(id, queue, value, delay_ms, poisoned, payload, afterwards, new_delay_ms)


def handling(load: Load, id: str, attempt: int) -> Handling:
    """What a worker does with the message at this attempt."""
    if plan_message(load, id).poisoned:
        return Handling.DIE
    drawn = _chance(load.seed, id, attempt).random()
    for share, what in ((0.04, Handling.FAIL), (0.08, Handling.EXTEND), (0.082, Handling.OVERSTAY)):
        if drawn < share:
            return what
    return Handling.COMPLETE


def _chance(*parts: object) -> random.Random:
    return random.Random("/".join(map(str, parts)))
