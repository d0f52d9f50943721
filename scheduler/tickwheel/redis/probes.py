"""The probes of a process: before a sweep, each server shows that its announcements arrive. No I/O.

A connection may be dead although it reports no error. So before a sweep (`redis/wait_list.py`), the listener sends a
*probe* to each server: it subscribes to a channel again. The answer shows that all earlier announcements of the server
have arrived. While an answer is missing, waiting dequeues search their queues themselves.
"""

import time
from collections.abc import Callable
from typing import Final

from tickwheel.redis.wait_list import SWEEP_S

# Seconds for which a sweep waits for the answers to the probes.
_PROBE_S: Final = SWEEP_S / 4


class Probes:
    """The probes without an answer, by server."""

    def __init__(self) -> None:
        self._channels: dict[str, bytes] = {}
        # The time until which the next sweep waits for answers, once the probes are sent.
        self._end: float | None = None
        # The servers that had not answered their probe at the last sweep, and have not answered since.
        self._unresponsive: set[str] = set()

    @property
    def are_sent(self) -> bool:
        """Whether the probes before the next sweep are sent."""
        return self._end is not None

    @property
    def all_respond(self) -> bool:
        """Whether all servers have answered the last probe that a sweep has waited for."""
        return not self._unresponsive

    def begin(self, choose: Callable[[], dict[str, bytes]], *, are_needed: bool) -> dict[str, list[bytes]]:
        """Begin to wait for answers. Return the channels to subscribe to again, by server: of those that `choose`
        returns, the ones of servers that owe no answer. Without ``are_needed``, there is none.
        """
        self._end = time.monotonic() + _PROBE_S
        if not are_needed:
            return {}
        sent = {server: channel for server, channel in choose().items() if server not in self._channels}
        self._channels |= sent
        return {server: [channel] for server, channel in sent.items()}

    def seconds_left(self) -> float | None:
        """Return the seconds for which the sweep waits, or None if it waits for no answer."""
        return max(self._end - time.monotonic(), 0) if self._end is not None and self._channels else None

    def end_if_over(self) -> bool:
        """Return whether the sweep may begin: all servers have answered, or the time is over."""
        if self._end is None or (self._channels and time.monotonic() < self._end):
            return False
        self._end = None
        self._unresponsive = set(self._channels)
        return True

    def awaited_channels(self) -> set[bytes]:
        """Return the channels whose answers are missing."""
        return set(self._channels.values())

    def on_answer(self, server: str, channel: bytes) -> None:
        """Process the answer of a server to a subscription, or that the subscription was lost."""
        if self._channels.get(server) == channel:
            self.drop(server)

    def drop(self, server: str) -> None:
        """Expect no answer from a server: its connection was lost, or it has answered."""
        self._channels.pop(server, None)
        self._unresponsive.discard(server)
