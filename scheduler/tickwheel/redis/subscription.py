"""The subscription of a process to the wake channels of one queue. See `redis/subscriptions.py`."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Event(Protocol):
    """An event of threading or asyncio."""

    def set(self) -> None: ...


E = TypeVar("E", bound=Event)


@dataclass(slots=True)
class Subscription(Generic[E]):
    """The subscription to a queue. ``confirmed`` is set once all channels are confirmed or a server refuses one.

    ``unconfirmed``: the channels that were never confirmed. ``used_at``: when the queue last had a waiter. ``caller``
    has the channels (`redis/caller_channels.py`).
    """

    confirmed: E
    channels: list[bytes]
    unconfirmed: set[bytes]
    used_at: float
    caller: str
    # The last other caller that has waited for the confirmation.
    sharer: str = ""

    def new_to(self, caller: str) -> tuple[bytes, ...]:
        """Return the unconfirmed channels if another caller than before waits for them, and otherwise none."""
        if caller in (self.caller, self.sharer):
            return ()
        self.sharer = caller
        return tuple(self.unconfirmed)
