"""The subscriptions of a process to the wake channels of its queues. No I/O.

A queue has a wake channel on each shard: a pub/sub channel that announces messages that became ready. A channel belongs
to the hash slot of its shard. If the slot moves, either the old server ends the subscription, or the topology names
another server for the slot. Then the channel needs a new subscription.

About ten seconds after the last waiter of a queue has left, the subscription of the queue ends, so that a process that
dequeues from many queues keeps few subscriptions. A worker that polls in a loop keeps its subscription.

Calls that wait until a message ends subscribe in the same way, to the channel of the message's queue and shard
(`redis/end_waits.py`). In this module, a queue may also be such an end topic.
"""

import logging
import time
from collections.abc import Callable, Collection
from typing import Any, Generic

from redis.exceptions import AskError

from tickwheel.plan import Search
from tickwheel.redis.awaited_answers import AwaitedAnswers
from tickwheel.redis.caller_channels import CallerChannels
from tickwheel.redis.end_refusals import EndRefusals
from tickwheel.redis.end_waits import EndWaits
from tickwheel.redis.probes import Probes
from tickwheel.redis.replies import permanent_error, raise_if_permanent
from tickwheel.redis.shared_searches import SharedSearches
from tickwheel.redis.subscription import E, Subscription
from tickwheel.redis.topology import Topology, node_name
from tickwheel.redis.wait_list import SWEEP_S, WaitList
from tickwheel.redis.wake_channels import CHANNELS_AT_ONCE, WakeChannels
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.storage.end_topic import is_end_topic

# Seconds: the pause after a lost connection, and the pause after a refused subscription.
RECONNECT_S, REFUSED_S = 0.1, 1.0
# Seconds for which a subscription lasts after the last waiter of its queue has left.
IDLE_S = 10.0

_log = logging.getLogger("tickwheel")


class Subscriptions(Generic[E]):
    """The subscriptions of one process, for `WakeupThread` or `WakeupTask` (the listener).

    The caller must hold a lock during `confirmation`, `missing_by_server` and `end_idle`. The other methods are for the
    listener.
    """

    def __init__(
        self,
        topology: Topology,
        waiters: WaitList,
        channels: Callable[[str], list[str]],
        caller_channels: CallerChannels | None = None,
    ) -> None:
        """``channels`` returns the names of a queue's channels, one for each shard."""
        self.slots_stale = False
        self._topology = topology
        self._waiters = waiters
        self.end_waits = EndWaits()
        self.awaited_answers = AwaitedAnswers()
        self._channels = WakeChannels(topology, channels)
        self._caller_channels = caller_channels or CallerChannels()
        self._by_queue: dict[str, Subscription[E]] = {}
        # The queues with channels that were never confirmed.
        self._unconfirmed: set[str] = set()
        # The last error of a subscription, and of a read of the slots.
        self._error: Exception | None = None
        self._slots_error: Exception | None = None
        self._probes = Probes()
        # The time of the next check for idle subscriptions, and the queues that the present one has not reached yet.
        self._idle_check_at = 0.0
        self._unchecked: list[str] = []
        self._end_refusals = EndRefusals()
        self._log_throttle = LogThrottle()
        self._searches = SharedSearches()

    @property
    def has_any(self) -> bool:
        """Whether a queue has a subscription."""
        return bool(self._by_queue)

    @property
    def all_confirmed(self) -> bool:
        """Whether every channel of every queue is confirmed, and none is interrupted."""
        return not self._channels.is_interrupted and not self._unconfirmed

    def confirmation(self, queue: str, make_event: Callable[[], E], caller: str = "") -> tuple[E | None, bool]:
        """Return the event of a queue, and whether its subscription is new. The event is set once it is confirmed.

        The event is None if the caller has too many channels. Then the queue has no subscription.
        """
        now = time.monotonic()
        if (subscription := self._by_queue.get(queue)) is not None:
            subscription.used_at = now
            self._channels.share(subscription.new_to(caller), caller)
            return subscription.confirmed, False
        if not self._caller_channels.take(caller, self._channels.count(queue)):
            return None, False
        channels = self._channels.add(queue, caller)
        subscription = self._by_queue[queue] = Subscription(make_event(), channels, set(channels), now, caller)
        self._unconfirmed.add(queue)
        self._searches.begin_announcements(queue)
        return subscription.confirmed, True

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
        """Return a part of the channels to subscribe to now, by server. See `has_part`."""
        missing = self._channels.missing_by_server()
        if self._channels.lacks_servers:
            self.slots_stale = True
        return missing

    def end_idle(self) -> dict[str, list[bytes]]:
        """End the subscriptions of queues without waiters. Return the channels to unsubscribe from, by server.

        Checks the queues about once a second, part by part: see `has_part`. The caller then calls
        `WaitList.wake_lost_part` as after `on_message`.
        """
        now = time.monotonic()
        if not self._unchecked:
            if now < self._idle_check_at:
                return {}
            self._idle_check_at = now + SWEEP_S
            self._unchecked = list(self._by_queue)
        # The answer to a probe is still awaited, so its queue stays. A server that refuses SUNSUBSCRIBE keeps all.
        probed = self._probes.awaited_channels()
        ended: list[bytes] = []
        size = 0
        while self._unchecked and size < CHANNELS_AT_ONCE:
            queue = self._unchecked.pop()
            size += 1
            if (subscription := self._by_queue.get(queue)) is None:
                continue
            if self._waiters.has_waiter(queue) or self.end_waits.has_waiter(queue):
                subscription.used_at = now
            elif now - subscription.used_at > IDLE_S:
                size += len(subscription.channels)
                is_kept = self._end_refusals.has_any(map(self._channels.server, subscription.channels))
                if not is_kept and probed.isdisjoint(subscription.channels):
                    self._end(queue, subscription)
                    ended += subscription.channels
        self._end_interruptions(ended)
        if not self._by_queue:
            self._error = None
        return self._channels.remove(ended)

    @property
    def may_send_part(self) -> bool:
        """Whether the listener may call `missing_by_server` or `end_idle`: the last part is answered."""
        return self.awaited_answers.seconds_left() == 0

    @property
    def has_part(self) -> bool:
        """Whether `missing_by_server` or `end_idle` has a part for the listener: see `may_send_part`."""
        return bool(self._unchecked) or self._channels.has_missing

    def _end(self, queue: str, subscription: Subscription[E]) -> None:
        del self._by_queue[queue]
        self._unconfirmed.discard(queue)
        self._searches.end_announcements(queue)
        # A caller may still wait for the confirmation. Its waiter subscribes again.
        subscription.confirmed.set()
        self._caller_channels.put_back(subscription.caller, len(subscription.channels))

    def due_probes(self) -> dict[str, list[bytes]]:
        """Return the channels to subscribe to again, by server, if a sweep is due and its probes are not sent yet."""
        if self._probes.are_sent or self._waiters.seconds_to_sweep() > 0:
            return {}
        # A dequeue without a filter needs no costly search.
        return self._probes.begin(self._channels.one_of_each_server, are_needed=self._waiters.has_filters())

    def seconds_to_sweep(self) -> float:
        """Return the seconds until a method has work, unless an answer arrives earlier."""
        if self.has_part:
            return self.awaited_answers.seconds_left()
        left = self._probes.seconds_left()
        return self._waiters.seconds_to_sweep() if left is None else left

    def sweep_if_due(self) -> None:
        """Sweep about once a second, when all servers have answered their probes, or a quarter of a second later."""
        if self._probes.end_if_over():
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
        for subscription in list(self._by_queue.values()):
            subscription.confirmed.set()
        self._waiters.wake_all()
        self.end_waits.wake()

    def close(self) -> None:
        """End all waits for good. The callers no longer have the channels."""
        self.release_all()
        for subscription in self._by_queue.values():
            self._caller_channels.put_back(subscription.caller, len(subscription.channels))
        # A call that ends now may still subscribe.
        self._by_queue, self._caller_channels = {}, CallerChannels()

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
        is_used = self._channels.has_channels(server)
        self.on_connection_lost(server)
        if not is_used:
            # All subscriptions have ended, so no wake-up is lost.
            return 0.0
        self.log_problem(f"wake-ups interrupted, subscribing again: {error}")
        self._error = error
        return self._pause_after(error)

    def on_connection_lost(self, server: str) -> None:
        """Process the loss of a connection, or that it could not be opened: call `forget_part` until it returns False.

        Meanwhile, the event loop runs other tasks.
        """
        self._probes.drop(server)
        self.awaited_answers.drop(server)
        self._channels.drop_ending(server)
        self._end_refusals.forget(server)
        self.slots_stale |= self._topology.is_cluster and self._channels.has_channels(server)
        self.forget_part(server)

    def forget_part(self, server: str) -> bool:
        """Mark a part of a server's channels as interrupted. Return whether there are more."""
        self._channels.forget_part(server)
        return self._channels.has_channels(server)

    def on_message(self, server: str, message: Any) -> None:
        """Process a wake-up, or the server's answer to a subscription or to its end.

        The caller then calls `WaitList.wake_lost_part` until there is nothing left to wake.
        """
        self._error = None
        kind, channel, data = message
        if kind != b"smessage":
            self.awaited_answers.on_answer(server)
        if kind == b"ssubscribe":
            self._probes.on_answer(server, channel)
        if kind == b"sunsubscribe" and self._channels.is_ending(server, channel):
            self._channels.on_end_answered(server, channel)
        elif (queue := self._channels.queue(channel)) is None:
            # A late message of a subscription that has ended.
            return
        elif kind == b"smessage" and is_end_topic(queue):
            self.end_waits.announce(queue, data)
        elif kind == b"smessage":
            self._searches.announce(queue)
            self._waiters.wake(queue, int(data))
        elif self._channels.server(channel) != server or self._channels.is_ending(server, channel):
            # An answer for an earlier subscription to the channel.
            return
        elif kind == b"ssubscribe":
            self._mark_confirmed(queue, channel)
        elif kind == b"sunsubscribe":
            self._forget([channel])
        if self._log_throttle.has_logged and self.all_confirmed:
            self._log_throttle.has_logged = False
            _log.info("wake-ups restored: all subscriptions are confirmed")

    def on_redirect(self, server: str, error: AskError) -> None:
        """Process a redirect in answer to a subscription or to its end: another server has the hash slot."""
        self.awaited_answers.on_answer(server)
        self._topology.apply_moved(error.slot_id, node_name(error.host, error.port, server))
        self._channels.drop_ending(server, error.slot_id)
        self._forget(self._channels.of_slot(server, error.slot_id))
        self.slots_stale = False

    def is_end_refused(self, server: str, error: object) -> bool:
        """Return whether an error refuses SUNSUBSCRIBE (`redis/end_refusals.py`)."""
        is_refused = self._end_refusals.add_if_refused(server, error)
        if is_refused:
            self.awaited_answers.on_answer(server)
            self._channels.drop_ending(server)
        return is_refused

    def _pause_after(self, error: Exception) -> float:
        """End all waits if the error is permanent. Return the seconds to wait before the next attempt."""
        if permanent_error(error) is None:
            return RECONNECT_S
        self.release_all()
        return REFUSED_S

    def _mark_confirmed(self, queue: str, channel: bytes) -> None:
        subscription = self._by_queue[queue]
        subscription.unconfirmed.discard(channel)
        if queue in self._unconfirmed and not subscription.unconfirmed:
            self._unconfirmed.remove(queue)
            subscription.confirmed.set()
            # Waiters without a confirmed subscription have missed wake-ups.
            self._waiters.note_lost(queue)
            self.end_waits.wake(queue)
        self._end_interruptions([channel])

    def _end_interruptions(self, channels: Collection[bytes]) -> None:
        """Mark channels as not interrupted. Wake their waiters, because the wake-ups on the channels were lost."""
        for queue in self._channels.end_interruptions(channels) & self._by_queue.keys():
            if is_end_topic(queue):
                self.end_waits.wake(queue)
            else:
                self._searches.announce(queue)
                self._waiters.note_lost(queue)

    def _receives_all(self, queue: str) -> bool:
        """Return whether all announcements of the queue arrive: its channels are confirmed, and all servers respond."""
        is_confirmed = queue in self._by_queue and queue not in self._unconfirmed
        return is_confirmed and not self._channels.is_interrupted and self._probes.all_respond

    def _forget(self, channels: list[bytes]) -> None:
        for channel in channels:
            if (server := self._channels.server(channel)) is not None:
                self._probes.on_answer(server, channel)
        self._channels.forget_servers(channels)
        self.slots_stale = self._topology.is_cluster
