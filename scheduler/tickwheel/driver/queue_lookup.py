"""What the wheel needs to know of queues: the name behind a number, and what its scripts are to be told."""

from dataclasses import dataclass
from typing import Protocol

from tickwheel.errors import TickwheelError


class NamespaceRecreated(TickwheelError):
    """The namespace was made anew with other shards: who drives those of before must start again."""


@dataclass(frozen=True, slots=True)
class QueueRef:
    """A queue as the event process's scripts know it. ``context`` is opaque here: ARGV[3] of theirs."""

    name: str
    context: bytes


class QueueLookup(Protocol):
    """Looks queues up. Both may ask the server at home, and may fail as calls of a server do, or with HomeChanged."""

    def lookup(self, number: int) -> QueueRef | None:
        """The queue of this number; None if home does not know it either, when asked just now."""

    def renew(self, number: int, shard: int) -> QueueRef | None:
        """The same, read from home, with the shard's copy of the configuration brought up to date."""
