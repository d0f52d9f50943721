"""The wake channels of the queues of a process: the server of each, and those that lack a subscription. No I/O.

A subscription *ends* if the process sends SUNSUBSCRIBE. Answers that the server sends afterwards for the channel may
still arrive, also if the process has subscribed to the channel again.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from tickwheel.redis.topology import Topology, hash_slot


@dataclass(slots=True)
class _Channel:
    """A channel. ``server`` is the server of the latest subscription, or None if the channel lacks a subscription."""

    queue: str
    shard: int
    server: str | None = None


class WakeChannels:
    """The channels of queues. `WakeupThread` or `WakeupTask` sends the commands.

    The caller must hold a lock during `add`, `remove` and `missing_by_server`. The other methods are for the listener.
    """

    def __init__(self, topology: Topology, names: Callable[[str], list[str]]) -> None:
        """``names`` returns the names of a queue's channels, one for each shard. An empty name stands for no channel.

        A queue may also be an end topic (`storage/end_topic.py`).
        """
        self._topology = topology
        self._names = names
        self._channels: dict[bytes, _Channel] = {}
        # The channels of each server, and those that have no server yet. Their order is that of their subscription.
        self._by_server: dict[str, dict[bytes, None]] = {}
        self._missing: dict[bytes, None] = {}
        # The server of each shard at the last call of `missing_by_server`.
        self._servers: list[str | None] = []
        # By server: the number of answers to SUNSUBSCRIBE that the server still owes for a channel, and its shard.
        self._ending: dict[str, dict[bytes, tuple[int, int]]] = {}

    def add(self, queue: str) -> list[bytes]:
        """Add the channels of a queue, and return them."""
        names = self._names(queue)
        channels = {shard: name.encode() for shard, name in enumerate(names) if name}
        for shard, channel in channels.items():
            self._channels[channel] = _Channel(queue, shard)
            self._missing[channel] = None
        self._servers += [self._topology.server(shard) for shard in range(len(self._servers), len(names))]
        return list(channels.values())

    def remove(self, channels: Collection[bytes]) -> dict[str, list[bytes]]:
        """Remove channels. Return those that have a subscription, by server: the caller ends these subscriptions."""
        ended: dict[str, list[bytes]] = {}
        for channel in channels:
            entry = self._channels.pop(channel)
            self._missing.pop(channel, None)
            if entry.server is not None:
                del self._by_server[entry.server][channel]
                ending = self._ending.setdefault(entry.server, {})
                ending[channel] = ending.get(channel, (0, 0))[0] + 1, entry.shard
                ended.setdefault(entry.server, []).append(channel)
        return ended

    def queue(self, channel: bytes) -> str | None:
        """Return the queue of a channel, or None if the channel was removed."""
        entry = self._channels.get(channel)
        return None if entry is None else entry.queue

    def server(self, channel: bytes) -> str | None:
        """Return the server of the latest subscription to a channel, or None if the channel has none."""
        entry = self._channels.get(channel)
        return None if entry is None else entry.server

    def at(self, server: str) -> list[bytes]:
        """Return the channels of a server."""
        return list(self._by_server.get(server, ()))

    def one_of_each_server(self) -> dict[str, bytes]:
        """Return one channel of each server."""
        return {server: next(iter(channels)) for server, channels in self._by_server.items() if channels}

    def missing_by_server(self) -> tuple[dict[str, list[bytes]], list[bytes]]:
        """Return the channels to subscribe to now, by server, and those of them that were at another server before."""
        missing: dict[str, list[bytes]] = {}
        moved: list[bytes] = []
        servers = [self._topology.server(shard) for shard in range(len(self._servers))]
        # All channels are read only if a slot has moved: this method is called for each change of a subscription.
        candidates = self._channels if servers != self._servers else self._missing
        self._servers = servers
        for channel in list(candidates):
            entry = self._channels[channel]
            server = servers[entry.shard]
            if server is not None and server != entry.server:
                if entry.server is not None:
                    moved.append(channel)
                self._set_server(channel, entry, server)
                missing.setdefault(server, []).append(channel)
        return missing, moved

    @property
    def lacks_servers(self) -> bool:
        """Whether a channel has no server. After `missing_by_server`, the topology names no server for it."""
        return bool(self._missing)

    def forget_servers(self, channels: Collection[bytes]) -> None:
        """Forget the servers of channels, because their subscriptions are lost."""
        for channel in channels:
            self._set_server(channel, self._channels[channel], None)

    def of_slot(self, server: str, moved_slot: int) -> list[bytes]:
        """Return the channels of a server that belong to a hash slot."""
        return [channel for channel in self.at(server) if hash_slot(self._channels[channel].shard) == moved_slot]

    def is_ending(self, server: str, channel: bytes) -> bool:
        """Return whether the server still owes an answer to SUNSUBSCRIBE: earlier answers confirm no subscription."""
        return channel in self._ending.get(server, ())

    def on_end_answered(self, server: str, channel: bytes) -> None:
        """Process one answer to SUNSUBSCRIBE."""
        ending = self._ending[server]
        count, shard = ending.pop(channel)
        if count > 1:
            ending[channel] = count - 1, shard

    def drop_ending(self, server: str, slot: int | None = None) -> None:
        """Expect no more answers to SUNSUBSCRIBE from a server, for all hash slots or for one."""
        ending = self._ending.pop(server, {})
        if slot is not None:
            self._ending[server] = {name: owed for name, owed in ending.items() if hash_slot(owed[1]) != slot}

    def _set_server(self, channel: bytes, entry: _Channel, server: str | None) -> None:
        if entry.server is not None:
            del self._by_server[entry.server][channel]
        entry.server = server
        if server is None:
            self._missing[channel] = None
        else:
            self._missing.pop(channel, None)
            self._by_server.setdefault(server, {})[channel] = None
