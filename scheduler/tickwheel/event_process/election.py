"""Who may drive a shard. The fence in Redis makes a wrong answer harmless; the election makes it rare."""

from threading import Event
from typing import Protocol


class Leadership(Protocol):
    """The right to drive one shard, won in an election."""

    @property
    def epoch(self) -> int | None:
        """The fencing number of this win; None: the next of the counter that the shard keeps."""

    @property
    def lost(self) -> bool:
        """Whether the right is known to have ended. Driving stops then; the fence covers what came before."""

    def release(self) -> None:
        """Give the right up, so that another may have it at once."""


class Election(Protocol):
    """One kind of election. A shard is driven by one kind for good."""

    @property
    def kind(self) -> str:
        """The name of the kind, stored in the shard."""

    def acquire(self, shard: int, stop: Event) -> Leadership | None:
        """Wait for the right to drive the shard; None if ``stop`` was set first."""
