"""Hands due messages of one shard to the sinks of their queues, as a worker: leased, completed once acknowledged.

So exclusive values, order and attempts hold by the same scripts. While a broker is away the leases are extended; only
what it refuses is failed. After a crash the leases end by themselves, and what was in flight may come twice.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from threading import Event
from typing import Final, Protocol

from redis import Redis

from tickwheel.driver.fenced_shard import Shard
from tickwheel.driver.server_clock import monotonic_ms
from tickwheel.driver.stats import WheelStats
from tickwheel.errors import LeaseLost, QueueBlocked, QueueConfigConflict, QueueNotFound
from tickwheel.limits import CALL_MESSAGES
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import Core
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.settle import complete, extend_many, fail
from tickwheel.redis.blocking_executor import SyncIO
from tickwheel.runtime.wake_pipe import WakePipe
from tickwheel.sinks.channel_listener import Channels
from tickwheel.sinks.in_flight_messages import Handed
from tickwheel.sinks.registry import Sinks
from tickwheel.sinks.sink import DueMessage, Sink
from tickwheel.storage import keys

WORKER: Final = "tickwheel-sink"
# A call is not made for fewer, as those under way make room.
LEAST: Final = 100
# At an orderly end the broker has so long to answer.
ENDING_MS: Final = 800.0
# A sink without room is tried again after so long, and nothing else waits for longer than this.
_FULL_MS: Final = 20.0
_LONGEST_MS: Final = 60_000.0

_log = logging.getLogger("tickwheel.sinks")


class Home(Protocol):
    """Where queues are looked up."""

    def sinks(self, heard_ms: float) -> Mapping[str, QueueConfig]:
        """The queues that have a sink, as home had them at that moment on the monotonic clock or later."""


class HandOff:
    """The sinks of one shard under one fence."""

    what = "hand-off to sinks"

    def __init__(
        self,
        connect: Callable[[int], "Redis"],
        shard: Shard,
        *,
        core: Core,
        io: SyncIO,
        home: Home,
        sinks: Sinks,
        stats: WheelStats,
    ) -> None:
        self._connect = connect
        self._shard = shard.number
        self._adopted = shard.keys["adopted"]
        self._core = core
        self._io = io
        self._home = home
        self._sinks = sinks
        self._stats = stats
        self._wake = WakePipe()
        self._handed = Handed(self._wake.set)
        self._queues: dict[str, tuple[QueueConfig, Sink]] = {}
        # Queues that may have something, in the order in which they are asked.
        self._ready: dict[str, None] = {}
        self._is_outdated = False

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._wake.close()
        self._stats.sink_in_flight = 0

    def run(self, stopping: Event, works: Callable[[], None]) -> None:
        """Hand over until told to stop. Raises at the first failure; what was sent is still known the next time."""
        channels = Channels(self._connect(self._shard), self._wake.fileno())
        try:
            self._look(channels)
            while not stopping.is_set():
                self._wake.clear()
                self._settle()
                self._extend()
                self._handed.send()
                works()
                self._hear(channels, self._until() if not self._takes() else 0.0)
        finally:
            channels.close()
        self._end()

    def _look(self, channels: Channels) -> None:
        """Which queues have a sink. News are heard first and home is read after, so that no change is missed."""
        channels.follow([self._adopted, *map(self._channel, self._queues)])
        found = self._home.sinks(monotonic_ms())
        self._queues = {
            queue: (config, sink)
            for queue, config in found.items()
            if config.sink is not None and (sink := self._sinks.sink(config.sink)) is not None
        }
        channels.follow([self._adopted, *map(self._channel, self._queues)])
        self._ready = dict.fromkeys(self._queues)
        self._is_outdated = False

    def _hear(self, channels: Channels, until_ms: float) -> None:
        heard = channels.hear(until_ms)
        if self._adopted in heard or self._is_outdated:
            self._look(channels)
        elif heard:
            self._ready |= {queue: None for queue in self._queues if self._channel(queue) in heard}

    def _until(self) -> float:
        now = monotonic_ms()
        if self._handed.unsent:
            return now + _FULL_MS
        extension = self._handed.next_extension()
        return now + _LONGEST_MS if extension is None else extension

    def _takes(self) -> bool:
        """Lease what the next queue has, and send it; whether there is more to do at once."""
        room = min(self._handed.room, CALL_MESSAGES)
        if not self._ready or room < LEAST:
            return False
        queue = next(iter(self._ready))
        del self._ready[queue]
        config, sink = self._queues[queue]
        lease, began = timedelta(milliseconds=config.lease_ms), monotonic_ms()
        asked = Dequeue(self._core, queue, room, None, lease, None, WORKER, None, "heads", sink=config.sink)
        try:
            messages, has_more = self._io.run(asked.of_shard(self._shard, DueMessage))
        except QueueBlocked as error:
            # What ends this is a change of the configuration, which is heard of.
            _log.info("shard %d: queue %s is not handed over: %s", self._shard, queue, error)
            return True
        except (QueueConfigConflict, QueueNotFound):
            self._is_outdated = True
            return True
        if messages:
            self._handed.add(sink, messages, config.lease_ms, began)
            self._handed.send()
        if has_more or len(messages) == room:
            self._ready[queue] = None
        return True

    def _settle(self) -> None:
        """Finish what the brokers have answered."""
        handed, stats = self._handed, self._stats
        handed.hear()
        if handed.acknowledged:
            self._complete(handed.acknowledged)
            stats.sink_acknowledged += len(handed.acknowledged)
            handed.settled(handed.acknowledged)
            handed.acknowledged = []
        while handed.refused:
            message, reason = handed.refused[0]
            self._fail(message, reason)
            handed.refused.popleft()
            handed.settled([message])
            stats.sink_refused += 1
        stats.sink_in_flight = len(handed)

    def _complete(self, messages: list[DueMessage]) -> None:
        messages.sort(key=attrgetter("queue"))
        for queue, of_queue in groupby(messages, attrgetter("queue")):
            try:
                self._io.run(complete(self._core, list(of_queue)))
            except (LeaseLost, QueueNotFound) as error:
                _log.warning("shard %d: queue %s: handed over, but not completed: %s", self._shard, queue, error)

    def _fail(self, message: DueMessage, reason: str) -> None:
        _log.warning("shard %d: message %r of queue %s was refused: %s", self._shard, message.id, message.queue, reason)
        try:
            self._io.run(fail(self._core, message, f"the sink refused it: {reason}", None))
        except (LeaseLost, QueueNotFound) as error:
            _log.info("shard %d: what was refused is gone: %s", self._shard, error)

    def _extend(self) -> None:
        for batch in self._handed.to_extend(began := monotonic_ms()):
            messages = list(batch.messages)
            try:
                lost = self._io.run(extend_many(self._core, messages, batch.lease_ms))
            except QueueNotFound:
                lost = messages
            if lost:
                _log.warning("shard %d: the leases of %d messages for sinks are lost", self._shard, len(lost))
            batch.extended(began)
            self._handed.settled(lost)

    def _end(self) -> None:
        """Hear what is answered in time. The leases of the rest end by themselves."""
        until = monotonic_ms() + ENDING_MS
        while True:
            self._wake.clear()
            self._settle()
            left = until - monotonic_ms()
            if not self._handed or left <= 0:
                break
            self._wake.wait(left)
        if self._handed:
            _log.warning(
                "shard %d: %d messages for sinks had no answer; they are sent again once their leases have ended",
                *(self._shard, len(self._handed)),
            )

    def _channel(self, queue: str) -> str:
        return keys.queue_key(self._core.namespace, self._shard, queue, "wake")
