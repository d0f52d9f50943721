"""Commands for a shard's server, as data. Driver and relay yield them; a connection or the simulator executes them.

Replies:

Call             the result of the script
ReadFence        the packed fence, or None
ReadStream       a list of (entry id, packed timers or events)
ReadSlots        a list of slot names
ReadSlot         a list of chunks of packed timers
WaitForReplicas  a number of replicas
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from tickwheel.storage.scripts import Call


@dataclass(frozen=True, slots=True)
class ReadFence:
    """Reads the shard's current fence."""

    clock_key: str


@dataclass(frozen=True, slots=True)
class ReadStream:
    """Reads up to ``count`` entries of a stream after an id. Entries of the inbox pack timers; the outbox, events.

    ``until_ms`` is the moment on the process's monotonic clock up to which to wait for the first entry; None does not
    wait.
    """

    key: str
    after: bytes
    count: int
    until_ms: float | None


@dataclass(frozen=True, slots=True)
class ReadSlots:
    """Reads the names of slots in use, by rank."""

    key: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class ReadSlot:
    """Reads chunks of a slot, from a position on."""

    key: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class WaitForReplicas:
    """Waits until ``count`` replicas have everything that this connection wrote, for at most ``timeout_ms``."""

    count: int
    timeout_ms: int


Command = Call | ReadFence | ReadStream | ReadSlots | ReadSlot | WaitForReplicas

# Parts of the driver: each is sent the reply to a command that it yields, or thrown `ScriptError`. `DutySteps` return
# whether there was anything to do; `MoveSteps` return about how many timers they moved.
Steps = Generator[Command, Any, None]
DutySteps = Generator[Command, Any, bool]
MoveSteps = Generator[Command, Any, int]
