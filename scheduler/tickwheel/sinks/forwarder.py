"""Delivers due messages of one shard to the sinks of their queues.

The forwarder is a worker: it leases messages, and completes them when the broker has acknowledged them. So exclusive
values, order and attempts are handled by the same scripts as for other workers. While a broker is unreachable, the
forwarder extends the leases. A message fails only if the broker rejects it. After a crash the leases expire, and
messages that were in flight may arrive twice.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import timedelta
from threading import Event
from typing import Final, NamedTuple, Protocol

from redis import Redis

from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.shard_connection import make_connection
from tickwheel.driver.stats import WheelStats
from tickwheel.errors import QueueBlocked, QueueConfigConflict, QueueNotFound
from tickwheel.limits import CALL_MESSAGES
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.channel_listener import ChannelListener
from tickwheel.runtime.time import monotonic_ms
from tickwheel.runtime.wake_pipe import WakePipe
from tickwheel.sinks.in_flight_messages import InFlightMessages
from tickwheel.sinks.ready_queues import ReadyQueues
from tickwheel.sinks.registry import SinkRegistry
from tickwheel.sinks.settler import SinkSettler
from tickwheel.sinks.sink import Sink, SinkMessage
from tickwheel.storage import keys

WORKER: Final = "tickwheel-sink"
# How long a stopped forwarder waits for the answers of the brokers.
ENDING_MS: Final = 800.0
# How many rejected messages fail before messages of other sinks are sent again: each takes a call.
REJECTED_AT_ONCE: Final = 10
# How long to wait if a sink is full, if the unconfirmed sinks of all shards have their part of the buffer, and the
# maximum of any other wait.
_FULL_MS: Final = 20.0
_HELD_BACK_MS: Final = 100.0
_MAX_WAIT_MS: Final = 60_000.0

_log = logging.getLogger("tickwheel.sinks")


class SinkQueueLookup(Protocol):
    """Finds the queues that have a sink."""

    @property
    def read_pause_ms(self) -> float:
        """The time until the next read of all queues should begin; 0 if the read can begin now."""

    def queues_with_sinks(self, since_ms: float) -> Mapping[str, QueueConfig]:
        """Return the queues with a sink, by name, as stored in the metadata shard at ``since_ms`` or later.

        ``since_ms`` is a moment of the monotonic clock.
        """


class _SinkQueue(NamedTuple):
    config: QueueConfig
    url: str
    sink: Sink


class SinkForwarder:
    """Serves the sinks of one shard under one fence."""

    label = "hand-off to sinks"

    def __init__(
        self,
        connect: Callable[[int], "Redis"],
        shard: FencedShard,
        *,
        context: NamespaceContext,
        io: RedisExecutor,
        queue_lookup: SinkQueueLookup,
        sinks: SinkRegistry,
        stats: WheelStats,
    ) -> None:
        self._connect = connect
        self._shard = shard.number
        self._adopted = shard.keys["adopted"]
        self._context = context
        self._io = io
        self._settler = SinkSettler(io, context, shard.number)
        self._queue_lookup = queue_lookup
        self._sinks = sinks
        self._stats = stats
        self._wake = WakePipe()
        self._in_flight = InFlightMessages(self._wake.set, shard.number, sinks.unconfirmed_buffer)
        self._queues: dict[str, _SinkQueue] = {}
        # By the channel on which the queue announces messages.
        self._queue_of: dict[str, str] = {}
        self._ready = ReadyQueues(lambda queue: self._in_flight.sinks.is_confirmed(self._queues[queue].url))
        # Queues whose last dequeue was refused by another version of their configuration. They are ready after the next
        # reload.
        self._refused: set[str] = set()
        # If the queues must be reloaded: when the last change was noticed, on the monotonic clock.
        self._outdated_ms: float | None = None

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._wake.close()
        self._in_flight.forget_unsent()
        self._stats.sink_in_flight = 0

    def run(self, stopping: Event, on_progress: Callable[[], None]) -> None:
        """Deliver until ``stopping`` is set. Raises the first error; the next `run` keeps the messages in flight."""
        connection = make_connection(self._connect(self._shard))
        with closing(ChannelListener(connection, self._wake.fileno())) as listener:
            # Subscribes before reading the configuration, so that no change is missed.
            self._subscribe(listener)
            # Messages may have become due before the subscriptions.
            self._ready.add(self._queues)
            self._outdated_ms = monotonic_ms()
            while not stopping.is_set():
                self._settle()
                self._extend()
                self._in_flight.send()
                on_progress()
                self._wait_for_news(listener, self._wait_until_ms() if not self._dequeue_next() else 0.0)
                # Before `stopping` is checked: later, this could clear the wake-up by which `stop` ends a wait.
                self._wake.clear()
        self._end()

    def _subscribe(self, listener: ChannelListener) -> None:
        listener.set_channels([self._adopted, *self._queue_of])

    def _reload_queues(self, listener: ChannelListener, since_ms: float) -> None:
        """Reload the queues with a sink, as stored at ``since_ms`` or later. Add only changed queues to the ready ones.

        The channels of the others stay subscribed. One program may change a queue each second, and to dequeue from
        thousands of other queues each time would delay all sinks.
        """
        known, queues, changed = self._queues, {}, []
        for queue, config in self._queue_lookup.queues_with_sinks(since_ms).items():
            if queue in known and known[queue].config is config:
                queues[queue] = known[queue]
            elif config.sink is not None and (sink := self._sinks.sink(queue, config.sink)) is not None:
                queues[queue] = _SinkQueue(config, config.sink, sink)
                changed.append(queue)
        self._queues = queues
        self._queue_of = {self._channel(queue): queue for queue in self._queues}
        self._ready.keep(self._queues)
        self._in_flight.sinks.forget_others({queue: of_queue.url for queue, of_queue in self._queues.items()})
        self._subscribe(listener)
        self._ready.add([*changed, *(queue for queue in self._refused if queue in self._queues)])
        self._refused.clear()
        self._outdated_ms = None

    def _wait_for_news(self, listener: ChannelListener, until_ms: float) -> None:
        published = listener.poll(until_ms)
        self._ready.add(self._queue_of[channel] for channel in published if channel in self._queue_of)
        if self._adopted in published:
            self._outdated_ms = monotonic_ms()
        if self._outdated_ms is not None and not self._queue_lookup.read_pause_ms:
            self._reload_queues(listener, self._outdated_ms)

    def _wait_until_ms(self) -> float:
        now = monotonic_ms()
        if self._in_flight.refused:
            return now
        if self._in_flight.unsent:
            return now + _FULL_MS
        extension = self._in_flight.next_extension()
        until = now + (_HELD_BACK_MS if self._in_flight.held_back else _MAX_WAIT_MS)
        until = until if extension is None else min(until, extension)
        return until if self._outdated_ms is None else min(until, now + self._queue_lookup.read_pause_ms)

    def _dequeue_next(self) -> bool:
        """Lease messages of the next queue, and send them. Return whether to call again without waiting."""
        if self._in_flight.is_blocked or (queue := self._take_next_queue()) is None:
            return False
        config, url, sink = self._queues[queue]
        count = min(self._in_flight.sinks.limit(url), CALL_MESSAGES)
        lease, began = timedelta(milliseconds=config.lease_ms), monotonic_ms()
        try:
            options = DequeueOptions.parse(count, lease=lease, worker=WORKER, sink=url)
            dequeue = Dequeue(self._context, queue, options)
            messages, has_more = self._io.run(dequeue.dequeue_shard(self._shard, SinkMessage))
        except QueueBlocked as error:
            # Only a change of the configuration unblocks the queue. A channel announces the change.
            _log.info("shard %d: queue %s is not forwarded to its sink: %s", self._shard, queue, error)
            if not config.dequeue_blocked:
                # The shard has not received this configuration yet, or this forwarder not that of the shard.
                self._refused.add(queue)
            return True
        except (QueueConfigConflict, QueueNotFound):
            # The cached configuration may be older than the one of this forwarder.
            self._context.forget_queue(queue)
            self._refused.add(queue)
            self._outdated_ms = monotonic_ms()
            return True
        except Exception:
            # Ends this run. In the next one, the queue has its turn after the others.
            self._ready.add_failed(queue)
            raise
        if messages:
            self._in_flight.add(url, sink, messages, config.lease_ms, began)
            self._in_flight.send()
        if has_more:
            self._ready.add([queue])
        return True

    def _take_next_queue(self) -> str | None:
        """Return the next queue whose sink may get messages now; None if there is none."""
        sinks = self._in_flight.sinks
        self._ready.add(sinks.take_ready())
        while (queue := self._ready.take()) is not None:
            url = self._queues[queue].url
            if sinks.limit(url):
                return queue
            sinks.wait(url, queue)
        return None

    def _settle(self) -> None:
        """Settle the messages that the brokers have answered; of those that they rejected, only `REJECTED_AT_ONCE`."""
        in_flight, stats = self._in_flight, self._stats
        in_flight.drain_answers()
        if in_flight.acknowledged:
            self._settler.complete(in_flight.acknowledged)
            stats.sink_acknowledged += len(in_flight.acknowledged)
            in_flight.on_settled(in_flight.acknowledged)
            in_flight.acknowledged = []
        for _ in range(min(len(in_flight.refused), REJECTED_AT_ONCE)):
            message, reason = in_flight.refused[0]
            self._settler.fail(message, reason)
            in_flight.refused.popleft()
            in_flight.on_settled([message])
            stats.sink_refused += 1
        stats.sink_in_flight = len(in_flight)

    def _extend(self) -> None:
        for batch in self._in_flight.to_extend(began := monotonic_ms()):
            lost = self._settler.extend(list(batch.messages), batch.lease_ms)
            if lost:
                _log.warning(
                    "shard %d: the leases of %d messages in flight to sinks are lost; these messages may be sent twice",
                    *(self._shard, len(lost)),
                )
            batch.on_extended(began)
            self._in_flight.on_settled(lost)

    def _end(self) -> None:
        """Settle the messages that the brokers answer in time. Release the others: their attempts do not count.

        The next leader of the shard sends them again. An answer of a broker that comes later has no effect.
        """
        until = monotonic_ms() + ENDING_MS
        while True:
            self._wake.clear()
            self._settle()
            left = until - monotonic_ms()
            if not self._in_flight or left <= 0:
                break
            if not self._in_flight.refused:
                self._wake.wait(left)
        if self._in_flight:
            _log.warning(
                "shard %d: the brokers did not answer for %d messages; these are released, and sent again",
                *(self._shard, len(self._in_flight)),
            )
            self._settler.release(list(self._in_flight))

    def _channel(self, queue: str) -> str:
        return keys.queue_key(self._context.namespace, self._shard, queue, "wake")
