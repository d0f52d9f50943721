"""Which wake channels are subscribed to at which server, and what is to be done about the others. No I/O.

A channel belongs to its shard's slot. When that moves, its server takes the subscription back, or the map tells.
"""

import logging
from collections.abc import Callable
from typing import Any

from redis.exceptions import AskError

from tickwheel.redis.topology import Topology, named, slot_of
from tickwheel.redis.wait_list import WaitList
from tickwheel.runtime.log_throttle import Seldom

_log = logging.getLogger("tickwheel")


class Subscriptions:
    """Of one process. `add` and `wanted` under one lock; all else is for the thread or task that listens."""

    def __init__(
        self,
        topology: Topology,
        waiters: WaitList,
        channels: Callable[[str], list[str]],
        stands: Callable[[str], None],
    ) -> None:
        """``channels`` names a queue's, one for each shard; ``stands`` is told of a queue whose all are confirmed."""
        self.map_is_old = False
        self._topology = topology
        self._waiters = waiters
        self._channels = channels
        self._stands = stands
        # By channel: its queue and shard; where it was subscribed to last. By queue, channels not confirmed so far.
        self._of: dict[bytes, tuple[str, int]] = {}
        self._at: dict[bytes, str] = {}
        self._unconfirmed: dict[str, set[bytes]] = {}
        # What was published on these is lost: once they stand again, everybody looks.
        self._interrupted: set[bytes] = set()
        self._seldom = Seldom()

    @property
    def all_stand(self) -> bool:
        """Whether nothing is interrupted, and every channel of every queue was confirmed."""
        return not self._interrupted and not any(list(self._unconfirmed.values()))

    def add(self, queue: str) -> None:
        """Somebody waits for the queue."""
        found = {channel.encode(): (queue, shard) for shard, channel in enumerate(self._channels(queue))}
        self._unconfirmed[queue] = set(found)
        self._of |= found

    def wanted(self) -> dict[str, list[bytes]]:
        """By server, the channels to subscribe to there now."""
        found: dict[str, list[bytes]] = {}
        for channel, (_, shard) in self._of.items():
            server, at = self._topology.server(shard), self._at.get(channel)
            if server is None:
                self.map_is_old = True
            elif server != at:
                if at is not None:
                    self._interrupted.add(channel)
                self._at[channel] = server
                found.setdefault(server, []).append(channel)
        return found

    def tell(self, trouble: str) -> None:
        """Log what keeps wake-ups away, once in a while. That they come again is logged when all stand."""
        _log.log(self._seldom.level(trouble), "%s", trouble)

    def lost(self, server: str) -> None:
        """The connection to a server is gone, or there was none to be had."""
        self._forget([channel for channel, at in self._at.items() if at == server])

    def hear(self, server: str, message: Any) -> None:
        """A message of the server's, or its answer to a subscription."""
        kind, channel, data = message
        queue, _ = self._of[channel]
        if kind == b"smessage":
            self._waiters.wake(queue, int(data))
        elif self._at.get(channel) != server:
            return
        elif kind == b"ssubscribe":
            self._confirmed(queue, channel)
        elif kind == b"sunsubscribe":
            self._forget([channel])
        if self._seldom.has_told and self.all_stand:
            self._seldom.has_told = False
            _log.info("wake-ups come again: all subscriptions stand")

    def passed_on(self, server: str, error: AskError) -> None:
        """The server's answer to a subscription: another one has the slot."""
        self._topology.moved(error.slot_id, named(error.host, error.port, server))
        moved = [channel for channel, at in self._at.items() if at == server and self._slot(channel) == error.slot_id]
        self._forget(moved)
        self.map_is_old = False

    def _confirmed(self, queue: str, channel: bytes) -> None:
        self._unconfirmed[queue].discard(channel)
        if not self._unconfirmed[queue]:
            self._stands(queue)
        if channel in self._interrupted:
            self._interrupted.remove(channel)
            if not any(self._at.get(each) == self._at[channel] for each in self._interrupted):
                self._waiters.wake_all()

    def _forget(self, channels: list[bytes]) -> None:
        for channel in channels:
            del self._at[channel]
        self._interrupted.update(channels)
        self.map_is_old = self._topology.is_cluster

    def _slot(self, channel: bytes) -> int:
        return slot_of(self._of[channel][1])
