"""The wake channels of the queues of a process: the server of each, and those that lack a subscription. No I/O.

A subscription *ends* if the process sends SUNSUBSCRIBE. Answers that the server sends afterwards for the channel may
still arrive, also if the process has subscribed to the channel again.

A process may have hundreds of thousands of channels. So the methods that concern all channels do a part of their work,
about a millisecond of it, and the caller calls them again.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from tickwheel.redis.caller_lines import CallerLines
from tickwheel.redis.topology import Topology, hash_slot

# The number of channels of a part.
CHANNELS_AT_ONCE: Final = 500


@dataclass(slots=True)
class _Channel:
    """A channel. ``server`` is the server of the latest subscription, or None if the channel lacks a subscription.

    If the subscription was *interrupted*, wake-ups are lost until the next one is confirmed. ``caller``: see
    `redis/caller_channels.py`.
    """

    queue: str
    shard: int
    caller: str
    server: str | None = None
    is_interrupted: bool = False


class WakeChannels:
    """The channels of queues. `WakeupThread` or `WakeupTask` sends the commands.

    The caller must hold a lock during `add`, `share`, `remove` and `missing_by_server`. The other methods are for the
    listener.
    """

    def __init__(self, topology: Topology, names: Callable[[str], list[str]]) -> None:
        """``names`` returns the names of a queue's channels, one for each shard. An empty name stands for no channel.

        A queue may also be an end topic (`storage/end_topic.py`).
        """
        self._topology = topology
        self._names = names
        self._channels: dict[bytes, _Channel] = {}
        # The channels of each server, in the order of their subscription.
        self._by_server: dict[str, dict[bytes, None]] = {}
        # The channels to subscribe to, those that are possibly at a wrong server, and those for whose shard the
        # topology names no server.
        self._missing = CallerLines[bytes]()
        # The channels of lost connections. They come last, because the server is possibly down.
        self._lost = CallerLines[bytes]()
        self._unchecked: list[bytes] = []
        self._unplaced: dict[bytes, None] = {}
        # The number of interrupted channels of each server, and of those that have no server.
        self._interrupted: dict[str | None, int] = {}
        # By server: the queues of channels that were interrupted, until all channels that were sent are confirmed.
        self._restored: dict[str | None, set[str]] = {}
        # The server of each shard at the last call of `missing_by_server`.
        self._servers: list[str | None] = []
        # By server: the number of answers to SUNSUBSCRIBE that the server still owes for a channel, and its shard.
        self._ending: dict[str, dict[bytes, tuple[int, int]]] = {}

    def count(self, queue: str) -> int:
        """Return the number of channels of a queue that is no end topic."""
        return len(self._servers) or len(self._names(queue))

    def add(self, queue: str, caller: str = "") -> list[bytes]:
        """Add the channels of a queue, and return them. The channels of ``caller`` are sent in its turns."""
        names = self._names(queue)
        channels = {shard: name.encode() for shard, name in enumerate(names) if name}
        for shard, channel in channels.items():
            self._channels[channel] = _Channel(queue, shard, caller)
            self._missing.add(channel, caller)
        self._servers += [self._topology.server(shard) for shard in range(len(self._servers), len(names))]
        return list(channels.values())

    def share(self, channels: Collection[bytes], caller: str) -> None:
        """Let another caller's turns send channels if they are then sent earlier."""
        for channel in channels:
            entry = self._channels[channel]
            if entry.caller != caller and self._missing.move(channel, entry.caller, caller):
                entry.caller = caller

    def remove(self, channels: Collection[bytes]) -> dict[str, list[bytes]]:
        """Remove channels. Return those that have a subscription, by server: the caller ends these subscriptions."""
        ended: dict[str, list[bytes]] = {}
        for channel in channels:
            entry = self._channels.pop(channel)
            self._discard_missing(channel, entry)
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

    def has_channels(self, server: str) -> bool:
        """Return whether a server has channels."""
        return bool(self._by_server.get(server))

    def one_of_each_server(self) -> dict[str, bytes]:
        """Return one channel of each server."""
        return {server: next(iter(channels)) for server, channels in self._by_server.items() if channels}

    def missing_by_server(self) -> dict[str, list[bytes]]:
        """Return a part of the channels to subscribe to now, by server: see `has_missing`.

        Those that were at another server before are interrupted.
        """
        missing: dict[str, list[bytes]] = {}
        servers = [self._topology.server(shard) for shard in range(len(self._servers))]
        if servers != self._servers:
            # All channels are read only if a slot has moved: this method is called for each change of a subscription.
            self._unchecked = list(self._channels)
            self._servers = servers
        for channel in self._next_part():
            entry = self._channels[channel]
            server = servers[entry.shard]
            if server is None and entry.server is None:
                self._discard_missing(channel, entry)
                self._unplaced[channel] = None
            elif server is not None and server != entry.server:
                if entry.server is not None:
                    self._interrupt(entry)
                self._set_server(channel, entry, server)
                missing.setdefault(server, []).append(channel)
        return missing

    @property
    def has_missing(self) -> bool:
        """Whether `missing_by_server` has a further part."""
        return bool(self._missing or self._lost or self._unchecked)

    @property
    def lacks_servers(self) -> bool:
        """Whether the topology names no server for a channel that `missing_by_server` has checked."""
        return bool(self._unplaced)

    def forget_servers(self, channels: Collection[bytes]) -> None:
        """Forget the servers of channels, because their subscriptions were interrupted."""
        for channel in channels:
            self._forget_server(channel)
            self._missing.add(channel, self._channels[channel].caller)

    def forget_part(self, server: str) -> None:
        """Forget the server of a part of its channels, because their subscriptions were interrupted."""
        channels = self._by_server.get(server, {})
        for _ in range(min(CHANNELS_AT_ONCE, len(channels))):
            # `popitem` finds the last key at once, however many were removed.
            channel, _ = channels.popitem()
            self._forget_server(channel)
            self._lost.add(channel, self._channels[channel].caller)

    @property
    def is_interrupted(self) -> bool:
        """Whether a channel is interrupted."""
        return bool(self._interrupted)

    def end_interruptions(self, channels: Collection[bytes]) -> set[str]:
        """Mark channels as not interrupted. Return the queues whose wake-ups may have been lost.

        The queues of a part are returned when the last interrupted channel of the part ends to be one.
        """
        queues: set[str] = set()
        for channel in channels:
            entry = self._channels[channel]
            if entry.is_interrupted:
                entry.is_interrupted = False
                self._restored.setdefault(entry.server, set()).add(entry.queue)
                self._count_interrupted(entry.server, -1)
        # The last interrupted channel of a server may also have moved to another server.
        for server in self._restored.keys() - self._interrupted.keys():
            queues |= self._restored.pop(server)
        return queues

    def of_slot(self, server: str, moved_slot: int) -> list[bytes]:
        """Return the channels of a server that belong to a hash slot."""
        channels = self._by_server.get(server, ())
        return [channel for channel in channels if hash_slot(self._channels[channel].shard) == moved_slot]

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

    def _next_part(self) -> list[bytes]:
        """Return the channels of the next part. Each is checked once."""
        half = CHANNELS_AT_ONCE // 2
        part = [channel for channel in self._unchecked[-half:] if channel in self._channels]
        del self._unchecked[-half:]
        missing = self._missing or self._lost
        return list(dict.fromkeys(part + missing.take(CHANNELS_AT_ONCE - len(part))))

    def _discard_missing(self, channel: bytes, entry: _Channel) -> None:
        self._missing.discard(channel, entry.caller)
        self._lost.discard(channel, entry.caller)
        self._unplaced.pop(channel, None)

    def _forget_server(self, channel: bytes) -> None:
        entry = self._channels[channel]
        self._interrupt(entry)
        self._set_server(channel, entry, None)

    def _interrupt(self, entry: _Channel) -> None:
        if not entry.is_interrupted:
            entry.is_interrupted = True
            self._count_interrupted(entry.server, 1)

    def _count_interrupted(self, server: str | None, change: int) -> None:
        count = self._interrupted.get(server, 0) + change
        if count:
            self._interrupted[server] = count
        else:
            del self._interrupted[server]

    def _set_server(self, channel: bytes, entry: _Channel, server: str | None) -> None:
        if entry.is_interrupted:
            # In this order: other threads must not see that none is interrupted.
            self._count_interrupted(server, 1)
            self._count_interrupted(entry.server, -1)
        if entry.server is not None:
            # `forget_part` has removed the channel there already.
            self._by_server[entry.server].pop(channel, None)
        entry.server = server
        if server is not None:
            self._discard_missing(channel, entry)
            self._by_server.setdefault(server, {})[channel] = None
