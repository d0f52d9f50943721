"""Commands for a shard's server, as data. The driver and the relay create commands. In production, a `ShardConnection`
executes the commands; in tests of the driver, the simulator executes them.

Replies:

Call             the result of the script
ReadClaim        the values of CLAIM_FIELDS
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
class ReadClaim:
    """Reads the shard's last claim."""

    clock_key: str


@dataclass(frozen=True, slots=True)
class ReadStream:
    """Reads up to ``count`` entries of a stream after an id: packed timers of the inbox, or events of the outbox.

    ``until_ms`` is a moment on the process's monotonic clock: the wait for the first entry ends at this moment. If it
    is None, the read does not wait.
    """

    key: str
    after: bytes
    count: int
    until_ms: float | None


@dataclass(frozen=True, slots=True)
class ReadSlots:
    """Reads the names of ``count`` slots in use, from the rank ``first`` in the sorted set ``key``."""

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


Command = Call | ReadClaim | ReadStream | ReadSlots | ReadSlot | WaitForReplicas

# The generators of the driver yield commands. After each command, the generator is sent the reply, or `ScriptError` is
# raised in it. `DutySteps` return whether there was any work. `MoveSteps` return the approximate number of timers that
# they moved.
Steps = Generator[Command, Any, None]
DutySteps = Generator[Command, Any, bool]
MoveSteps = Generator[Command, Any, int]
