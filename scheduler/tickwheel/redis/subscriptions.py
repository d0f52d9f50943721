"""Which wake channels are subscribed to at which server, and what is to be done about the others. No I/O.

A channel belongs to its shard's slot. When that moves, its server takes the subscription back, or the map tells.
"""

import logging
from collections.abc import Callable
from typing import Any

from redis.exceptions import AskError

from tickwheel.redis.topology import Topology, hash_slot, node_name
from tickwheel.redis.wait_list import WaitList
from tickwheel.runtime.log_throttle import LogThrottle

_log = logging.getLogger("tickwheel")


class Subscriptions:
    """Of one process. `add` and `wanted` under one lock; all else is for the thread or task that listens."""

    def __init__(
        self,
        topology: Topology,
        waiters: WaitList,
        channels: Callable[[str], list[str]],
        on_confirmed: Callable[[str], None],
    ) -> None:
        """``channels`` names a queue's, one for each shard; ``stands`` is told of a queue whose all are confirmed."""
        self.slots_stale = False
        self._topology = topology
        self._waiters = waiters
        self._channels = channels
        self._on_confirmed = on_confirmed
        # By channel: its queue and shard; where it was subscribed to last. By queue, channels not confirmed so far.
        self._queue_shard_by_channel: dict[bytes, tuple[str, int]] = {}
        self._server_by_channel: dict[bytes, str] = {}
        self._unconfirmed: dict[str, set[bytes]] = {}
        # What was published on these is lost: once they stand again, everybody looks.
        self._interrupted: set[bytes] = set()
        self._log_throttle = LogThrottle()

    @property
    def all_confirmed(self) -> bool:
        """Whether nothing is interrupted, and every channel of every queue was confirmed."""
        return not self._interrupted and not any(list(self._unconfirmed.values()))

    def add(self, queue: str) -> None:
        """Somebody waits for the queue."""
        channels = {channel.encode(): (queue, shard) for shard, channel in enumerate(self._channels(queue))}
        self._unconfirmed[queue] = set(channels)
        self._queue_shard_by_channel |= channels

    def missing_by_server(self) -> dict[str, list[bytes]]:
        """By server, the channels to subscribe to there now."""
        missing: dict[str, list[bytes]] = {}
        for channel, (_, shard) in self._queue_shard_by_channel.items():
            server, at = self._topology.server(shard), self._server_by_channel.get(channel)
            if server is None:
                self.slots_stale = True
            elif server != at:
                if at is not None:
                    self._interrupted.add(channel)
                self._server_by_channel[channel] = server
                missing.setdefault(server, []).append(channel)
        return missing

    def log_problem(self, problem: str) -> None:
        """Log what keeps wake-ups away, once in a while. That they come again is logged when all stand."""
        _log.log(self._log_throttle.level(problem), "%s", problem)

    def on_connection_lost(self, server: str) -> None:
        """The connection to a server is gone, or there was none to be had."""
        self._forget([channel for channel, at in self._server_by_channel.items() if at == server])

    def on_message(self, server: str, message: Any) -> None:
        """A message of the server's, or its answer to a subscription."""
        kind, channel, data = message
        queue, _ = self._queue_shard_by_channel[channel]
        if kind == b"smessage":
            self._waiters.wake(queue, int(data))
        elif self._server_by_channel.get(channel) != server:
            return
        elif kind == b"ssubscribe":
            self._mark_confirmed(queue, channel)
        elif kind == b"sunsubscribe":
            self._forget([channel])
        if self._log_throttle.has_logged and self.all_confirmed:
            self._log_throttle.has_logged = False
            _log.info("wake-ups come again: all subscriptions stand")

    def on_redirect(self, server: str, error: AskError) -> None:
        """The server's answer to a subscription: another one has the slot."""
        self._topology.apply_moved(error.slot_id, node_name(error.host, error.port, server))
        moved = [
            channel
            for channel, at in self._server_by_channel.items()
            if at == server and self._hash_slot(channel) == error.slot_id
        ]
        self._forget(moved)
        self.slots_stale = False

    def _mark_confirmed(self, queue: str, channel: bytes) -> None:
        self._unconfirmed[queue].discard(channel)
        if not self._unconfirmed[queue]:
            self._on_confirmed(queue)
        if channel in self._interrupted:
            self._interrupted.remove(channel)
            if not any(
                self._server_by_channel.get(other) == self._server_by_channel[channel] for other in self._interrupted
            ):
                self._waiters.wake_all()

    def _forget(self, channels: list[bytes]) -> None:
        for channel in channels:
            del self._server_by_channel[channel]
        self._interrupted.update(channels)
        self.slots_stale = self._topology.is_cluster

    def _hash_slot(self, channel: bytes) -> int:
        return hash_slot(self._queue_shard_by_channel[channel][1])
