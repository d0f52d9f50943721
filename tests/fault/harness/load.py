"""The load of a run: its messages, and the actions of producers and workers, computed from the seed."""

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
    """The action of a producer on a message before the message is due."""

    NOTHING = "nothing"
    CANCEL = "cancel"
    RESCHEDULE = "reschedule"


class Handling(Enum):
    """The action of a worker on a leased message."""

    COMPLETE = "complete"
    FAIL = "fail"
    EXTEND = "extend"
    OVERSTAY = "overstay"
    """Keep the message longer than the lease, then complete it."""
    DIE = "die"


@dataclass(frozen=True, slots=True)
class Load:
    """The size and the kind of a load.

    ``rate`` is the total of messages per second of all producers. Of a thousand messages, ``poisoned`` kill every
    worker that leases them.
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
        """Return the number of batches that a producer enqueues."""
        return max(1, int(self.seconds * self.rate / self.producers / _BATCH))

    def batch(self, producer: str, number: int) -> tuple[float, list[str]]:
        """Return the time of a producer's batch in seconds from the start, and the ids of the batch."""
        ids = [f"{producer}-{n}" for n in range(number * _BATCH, (number + 1) * _BATCH)]
        return number * _BATCH * self.producers / self.rate, ids


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """One message of a load, with its planned actions."""

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
        """The limit of attempts of this message, or None for the limit of its queue."""
        return POISON_ATTEMPTS if self.poisoned else None


def plan_message(load: Load, id: str) -> PlannedMessage:
    """Return the planned message with this id. Every process computes the same message from the load."""
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
    """Return the action of a worker on this attempt of the message."""
    if plan_message(load, id).poisoned:
        return Handling.DIE
    drawn = _chance(load.seed, id, attempt).random()
    for share, action in ((0.04, Handling.FAIL), (0.08, Handling.EXTEND), (0.082, Handling.OVERSTAY)):
        if drawn < share:
            return action
    return Handling.COMPLETE


def _chance(*parts: object) -> random.Random:
    return random.Random("/".join(map(str, parts)))
