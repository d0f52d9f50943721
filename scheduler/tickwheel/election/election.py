"""The interfaces of an election, which each kind of election implements.

A shard rarely has two leaders at once. If it has, the fence in Redis rejects the calls of one of them.
"""

import os
import socket
from collections.abc import Callable
from enum import Enum
from threading import Event
from typing import Protocol

from tickwheel.election.claims import Claims


class OnFenced(Enum):
    """What a leader does if the shard rejects its claim because the shard has another fence."""

    END = "end"  # the process ends: two processes believe that they hold the lock
    COMPARE = "compare"  # the loop compares the epochs: the election's state may be lost
    STAND = "stand"  # the loop waits for the next leadership


class Leadership(Protocol):
    """The right to drive one shard, won in an election."""

    on_fenced: OnFenced

    @property
    def claims(self) -> Claims:
        """How the leader claims the shard."""

    @property
    def lost(self) -> bool:
        """Whether the leadership has ended, or must be handed over. The leader then stops driving. The fence rejects
        commands that the leader sends later.
        """

    def begin_wait(self) -> None:
        """Record that the leader's loop waits for its server or for a timer."""

    def end_wait(self) -> None:
        """Record that the leader's loop works."""

    def release(self) -> None:
        """Release the leadership, so that another process can have it immediately."""


class UnwatchedLeadership:
    """The parts of a leadership whose election does not watch the leader's loop."""

    def begin_wait(self) -> None:
        """Do nothing."""

    def end_wait(self) -> None:
        """Do nothing."""


class Election(Protocol):
    """One kind of election. A shard stores the kind of its first leader, and rejects leaders of another kind."""

    @property
    def kind(self) -> str:
        """The name of the kind, stored in the shard."""

    @property
    def unreadable_nodes(self) -> int:
        """How often this process ignored the data of a node because no event process writes such data."""

    @property
    def must_check_namespace(self) -> bool:
        """Whether the event process must check soon that the namespace exists: the election itself does not do it, or
        has found that the namespace is gone.
        """

    def acquire(self, shard: int, stop: Event, on_loss: Callable[[], None]) -> Leadership | None:
        """Wait for the leadership of the shard. Return None if ``stop`` was set or the process left the election.

        Raises TickwheelError if the election belongs to another namespace. ``on_loss`` is called, from any thread, when
        the leadership ends without `release`. ``on_loss`` must not block.
        """

    def resign(self, shard: int) -> bool:
        """Give up a shard that this process cannot reach, so that another process can lead it.

        This process competes for the shard again when it next calls `acquire`. Return True if another process can reach
        the shard. Otherwise change nothing, and return False.
        """

    def leave(self) -> None:
        """Prepare the end of this process: hand its shards over to other processes, within a second.

        The process drives each shard until another process takes over. All waiting calls of `acquire` return None.
        """

    def close(self) -> None:
        """Free all resources. Call only after all leaderships were released."""


def owner_name() -> str:
    """Return the name that this process stores in a shard as the shard's owner: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"
