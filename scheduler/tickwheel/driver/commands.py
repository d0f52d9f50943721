"""What the wheel of a shard, and the relay, ask of its server: data, sent by the runner, played by the simulator.

Replies, in the order of the classes: whatever the script returns; the packed fence or None; a list of
(entry id, what it packs); a list of slot names; a list of chunks of packed timers; a number.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from tickwheel.storage.scripts import Call


@dataclass(frozen=True, slots=True)
class ReadFence:
    """The fence that the shard obeys."""

    clock_key: str


@dataclass(frozen=True, slots=True)
class ReadStream:
    """Entries of a stream after an id: of the inbox, whose entries pack timers, or of the outbox, which pack events.

    ``until_ms`` is how long to wait for the first, on the process's monotonic clock; None does not wait.
    """

    key: str
    after: bytes
    count: int
    until_ms: float | None


@dataclass(frozen=True, slots=True)
class ReadSlots:
    """Names of the slots in use, by rank."""

    key: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class ReadSlot:
    """Chunks of a slot, from a position on."""

    key: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class WaitForReplicas:
    """How many replicas have all that this connection wrote, once that many have or so many ms have passed."""

    count: int
    timeout_ms: int


Command = Call | ReadFence | ReadStream | ReadSlots | ReadSlot | WaitForReplicas

# Parts of the driver: each is sent the reply to a command it yields, or thrown `Refused`. A duty says whether there was
# anything to do, `Moving` about how many timers it moved.
Steps = Generator[Command, Any, None]
DutySteps = Generator[Command, Any, bool]
MoveSteps = Generator[Command, Any, int]
