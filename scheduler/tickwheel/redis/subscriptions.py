"""The subscriptions of a process to wake channels, and the channels that still lack a subscription, by server. No I/O.

A queue has a wake channel on each shard: a pub/sub channel that announces messages that became ready. A channel belongs
to the hash slot of its shard. If the slot moves, either the old server ends the subscription, or the topology names
another server for the slot. Then the channel needs a new subscription.

A connection may be dead although it reports no error. So before a sweep (`redis/wait_list.py`), the listener sends a
*probe* to each server: it subscribes to a channel again. The answer shows that all earlier announcements of the server
have arrived. While an answer is missing, waiting dequeues search their queues themselves.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from redis.exceptions import AskError

from tickwheel.plan import Search
from tickwheel.redis.replies import permanent_error, raise_if_permanent
from tickwheel.redis.shared_searches import SharedSearches
from tickwheel.redis.topology import Topology, hash_slot, node_name
from tickwheel.redis.wait_list import SWEEP_S, WaitList
from tickwheel.runtime.log_throttle import LogThrottle

# Seconds: the pause after a lost connection, and the pause after a refused subscription.
RECONNECT_S, REFUSED_S = 0.1, 1.0
# Seconds for which a sweep waits for the answers to the probes.
_PROBE_S = SWEEP_S / 4


_log = logging.getLogger("tickwheel")


class Event(Protocol):
    """An event of threading or asyncio."""

    def set(self) -> None: ...


E = TypeVar("E", bound=Event)


class Subscriptions(Generic[E]):
    """The subscriptions of one process, for `WakeupThread` or `WakeupTask` (the listener).

    The caller must hold a lock during `add`, `confirmation` and `missing_by_server`. The other methods are for the
    listener.
    """

    def __init__(self, topology: Topology, waiters: WaitList, channels: Callable[[str], list[str]]) -> None:
        """``channels`` returns the names of a queue's channels, one for each shard."""
        self.slots_stale = False
        self._topology = topology
        self._waiters = waiters
        self._channels = channels
        # By queue: an event, set once all channels of the queue are confirmed or a server refuses a subscription.
        self._confirmations: dict[str, E] = {}
        # The last error of a subscription, and of a read of the slots.
        self._error: Exception | None = None
        self._slots_error: Exception | None = None
        self._queue_shard_by_channel: dict[bytes, tuple[str, int]] = {}
        # The server of the latest subscription to each channel.
        self._server_by_channel: dict[bytes, str] = {}
        # By queue: the channels that are not confirmed yet.
        self._unconfirmed: dict[str, set[bytes]] = {}
        # Channels whose subscription was interrupted. Wake-ups on them are lost, so all waiters check their queues once
        # the channels are confirmed again.
        self._interrupted: set[bytes] = set()
        # By server: the channel of a probe that is not answered yet.
        self._probes: dict[str, bytes] = {}
        # The time until which the next sweep waits for answers, once the probes are sent.
        self._probes_end: float | None = None
        # The servers that had not answered their probe at the last sweep, and have not answered since.
        self._unresponsive: set[str] = set()
        self._log_throttle = LogThrottle()
        self._searches = SharedSearches()

    @property
    def all_confirmed(self) -> bool:
        """Whether every channel of every queue is confirmed, and none is interrupted."""
        return not self._interrupted and not any(list(self._unconfirmed.values()))

    def confirmation(self, queue: str) -> E | None:
        """Return the event of a queue, or None if the queue was not added yet."""
        return self._confirmations.get(queue)

    def add(self, queue: str, confirmed: E) -> None:
        """Add the channels of a queue. The event is set once all of them are confirmed."""
        self._confirmations[queue] = confirmed
        channels = {channel.encode(): (queue, shard) for shard, channel in enumerate(self._channels(queue))}
        self._unconfirmed[queue] = set(channels)
        self._queue_shard_by_channel |= channels

    def begin_search(self, search: Search, notify: Callable[[], None]) -> None:
        """Begin a search (`SharedSearches.begin`)."""
        self._searches.begin(search, notify, is_subscribed=self._receives_all(search.queue))

    def is_queued(self, search: Search) -> bool:
        """Return whether a search waits for its turn."""
        return self._searches.is_queued(search)

    def release_slow_searches(self, search: Search) -> None:
        """Let more searches run that are equal to a queued search, if none of them has ended for a second."""
        self._searches.release_slow(search, is_subscribed=self._receives_all(search.queue))

    def end_search(self, search: Search) -> None:
        """End a search (`SharedSearches.end`)."""
        self._searches.end(search, is_subscribed=self._receives_all(search.queue))

    def missing_by_server(self) -> dict[str, list[bytes]]:
        """Return the channels to subscribe to now, by server."""
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

    def due_probes(self) -> dict[str, list[bytes]]:
        """Return the channels to subscribe to again, by server, if a sweep is due and its probes are not sent yet."""
        if self._probes_end is not None or self._waiters.seconds_to_sweep() > 0:
            return {}
        self._probes_end = time.monotonic() + _PROBE_S
        if not self._waiters.has_filters():
            # A dequeue without a filter needs no costly search.
            return {}
        channels = {server: channel for channel, server in self._server_by_channel.items()}
        sent = {server: channel for server, channel in channels.items() if server not in self._probes}
        self._probes |= sent
        return {server: [channel] for server, channel in sent.items()}

    def seconds_to_sweep(self) -> float:
        """Return the seconds until `due_probes` or `sweep_if_due` has work, unless an answer arrives earlier."""
        if self._probes_end is not None and self._probes:
            return max(self._probes_end - time.monotonic(), 0)
        return self._waiters.seconds_to_sweep()

    def sweep_if_due(self) -> None:
        """Sweep about once a second, when all servers have answered their probes, or a quarter of a second later."""
        if self._probes_end is not None and (not self._probes or time.monotonic() >= self._probes_end):
            self._probes_end = None
            self._unresponsive = set(self._probes)
            self._waiters.sweep_if_due()

    def log_problem(self, problem: str) -> None:
        """Log a problem with wake-ups, throttled. `on_message` logs the recovery once all channels are confirmed."""
        _log.log(self._log_throttle.level(problem), "%s", problem)

    def check(self) -> None:
        """Raise the error of the last read of the slots, or of the last subscription, if the error is permanent."""
        raise_if_permanent(self._slots_error)
        raise_if_permanent(self._error)

    def release_all(self) -> None:
        """End all waits for a confirmation or a wake-up."""
        for confirmed in list(self._confirmations.values()):
            confirmed.set()
        self._waiters.wake_all()

    def on_slots_unknown(self, error: Exception) -> float:
        """Log that no server returned the cluster's slots. Return the seconds to wait before the next attempt."""
        self.log_problem(f"wake-ups interrupted, no server returns the slots of the cluster: {error}")
        self._slots_error = error
        return self._pause_after(error)

    def on_slots_read(self) -> None:
        """Record that the cluster's slots were read."""
        self.slots_stale = False
        self._slots_error = None

    def on_error(self, server: str, error: Exception) -> float:
        """Process a failed connection or a refused subscription. Return the seconds to wait before the next attempt."""
        self.on_connection_lost(server)
        self.log_problem(f"wake-ups interrupted, subscribing again: {error}")
        self._error = error
        return self._pause_after(error)

    def on_connection_lost(self, server: str) -> None:
        """Mark the channels of a server as interrupted, because the connection was lost or could not be opened."""
        self._forget([channel for channel, at in self._server_by_channel.items() if at == server])
        self._drop_probe(server)

    def on_message(self, server: str, message: Any) -> None:
        """Process a wake-up, or the server's answer to a subscription."""
        self._error = None
        kind, channel, data = message
        queue, _ = self._queue_shard_by_channel[channel]
        if kind == b"ssubscribe" and self._probes.get(server) == channel:
            self._drop_probe(server)
        if kind == b"smessage":
            self._searches.announce(queue)
            self._waiters.wake(queue, int(data))
        elif self._server_by_channel.get(channel) != server:
            return
        elif kind == b"ssubscribe":
            self._mark_confirmed(queue, channel)
        elif kind == b"sunsubscribe":
            self._forget([channel])
        if self._log_throttle.has_logged and self.all_confirmed:
            self._log_throttle.has_logged = False
            _log.info("wake-ups restored: all subscriptions are confirmed")

    def on_redirect(self, server: str, error: AskError) -> None:
        """Process a redirect in answer to a subscription: another server has the hash slot."""
        self._topology.apply_moved(error.slot_id, node_name(error.host, error.port, server))
        moved = [
            channel
            for channel, at in self._server_by_channel.items()
            if at == server and self._hash_slot(channel) == error.slot_id
        ]
        self._forget(moved)
        self.slots_stale = False

    def _pause_after(self, error: Exception) -> float:
        """End all waits if the error is permanent. Return the seconds to wait before the next attempt."""
        if permanent_error(error) is None:
            return RECONNECT_S
        self.release_all()
        return REFUSED_S

    def _mark_confirmed(self, queue: str, channel: bytes) -> None:
        self._unconfirmed[queue].discard(channel)
        if not self._unconfirmed[queue]:
            self._confirmations[queue].set()
        if channel in self._interrupted:
            self._interrupted.remove(channel)
            if not any(
                self._server_by_channel.get(other) == self._server_by_channel[channel] for other in self._interrupted
            ):
                self._searches.announce_lost()
                self._waiters.wake_for_lost()

    def _receives_all(self, queue: str) -> bool:
        """Return whether all announcements of the queue arrive: its channels are confirmed, and all servers respond."""
        unconfirmed = self._unconfirmed.get(queue)
        return unconfirmed is not None and not unconfirmed and not self._interrupted and not self._unresponsive

    def _drop_probe(self, server: str) -> None:
        self._probes.pop(server, None)
        self._unresponsive.discard(server)

    def _forget(self, channels: list[bytes]) -> None:
        self._interrupted.update(channels)
        for channel in channels:
            server = self._server_by_channel.pop(channel)
            if self._probes.get(server) == channel:
                self._drop_probe(server)
        self.slots_stale = self._topology.is_cluster

    def _hash_slot(self, channel: bytes) -> int:
        return hash_slot(self._queue_shard_by_channel[channel][1])
