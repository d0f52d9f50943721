"""The interface through which a driver finds a queue by the number that timers contain."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from tickwheel.errors import TickwheelError


class NamespaceLost(TickwheelError):
    """The namespace no longer exists: its server has lost its data. An event process that drives it must end."""


class NamespaceRecreated(NamespaceLost):
    """The namespace was recreated with other shards, or is being deleted."""


@dataclass(frozen=True, slots=True)
class QueueRef:
    """A queue as the scripts of the event process address it.

    ``context`` is ARGV[3] of these scripts; the driver does not interpret it.
    """

    name: str
    context: bytes


class QueueLookup(Protocol):
    """Finds queues by number.

    `find`, `lookup`, `renew` and `check_shards` may call the metadata shard. They raise the errors of such a call,
    or `NamespaceRecreated`.
    """

    @property
    def unreadable_rows(self) -> int:
        """The number of queues whose configuration was unreadable at the latest read of the metadata shard."""

    @property
    def read_pause_ms(self) -> float:
        """The time until the next read of all queues should begin; 0 if the read can begin now.

        A caller of `lookup` that has other work waits until then. So reads take a limited share of the time.
        """

    def cached(self, number: int) -> QueueRef | None:
        """Return the queue of this number if it is cached, else None. Never call the metadata shard."""

    def find(self, number: int) -> QueueRef | None:
        """Return the queue of this number, or None if only `lookup` can find it. Reads at most the row of the queue."""

    def lookup(self, number: int) -> QueueRef | None:
        """Return the queue of this number, or None. If the queue is not cached, read the metadata shard first."""

    def renew(self, number: int, shard: int) -> QueueRef | None:
        """Read the queue from the metadata shard, and update the version of its configuration that ``shard`` stores.

        Return the queue. Return None if the number has no queue, or another one, which `lookup` finds.
        """

    def check_shards(self) -> bool:
        """Raise `NamespaceRecreated` if the namespace has another number of shards than this process drives.

        Return False if the metadata shard has lost the number: the namespace can still be recreated.
        """


class RelayQueueLookup(QueueLookup, Protocol):
    """Finds queues by number, also if numbers are given again."""

    def refresh(self, since_ms: float, wait: Callable[[float], bool]) -> bool:
        """Read all queues, unless they were read at ``since_ms`` or later. Before, ``wait`` until the read may begin.

        Return False if the wait ended early. May raise as `lookup`.
        """

    def confirm(self, numbers: Collection[int], wait: Callable[[float], bool]) -> bool:
        """Forget queues that lost these numbers, and ``wait`` until `lookup` may read. Return False if ended early."""
