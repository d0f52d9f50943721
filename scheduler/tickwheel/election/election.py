"""Who may drive a shard. The fence in Redis makes a wrong answer harmless; the election makes it rare."""

import os
import socket
from collections.abc import Callable
from threading import Event
from typing import Protocol


class Leadership(Protocol):
    """The right to drive one shard, won in an election."""

    @property
    def epoch(self) -> int | None:
        """The fencing number of this win; None: the next of the counter that the shard keeps."""

    @property
    def lost(self) -> bool:
        """Whether the right is known to have ended, or is wanted back. Driving stops then; the fence covers what came
        before.
        """

    def release(self) -> None:
        """Give the right up, so that another may have it at once."""


class Election(Protocol):
    """One kind of election. A shard is driven by one kind for good."""

    @property
    def kind(self) -> str:
        """The name of the kind, stored in the shard."""

    def acquire(self, shard: int, stop: Event, on_loss: Callable[[], None]) -> Leadership | None:
        """Wait for the right to drive the shard; None if ``stop`` was set or the process left the election.

        Raises TickwheelError where the election is another namespace's.
        ``on_loss`` is called, from any thread, when the right ends by itself. It must not block.
        """

    def resign(self, shard: int) -> bool:
        """This process cannot reach the shard: let another drive it until this one asks for it again by `acquire`.

        False where no other can: then nothing has changed.
        """

    def leave(self) -> None:
        """The process is about to end: hand over what it drives to others while it still drives, within a second.

        From then on nobody waits in `acquire`.
        """

    def close(self) -> None:
        """Free what is left. Only after all leaderships were released."""


def owner_name() -> str:
    """This process, as shards name who drives them: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"
