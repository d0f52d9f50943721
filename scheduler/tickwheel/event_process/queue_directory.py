"""The queues of a namespace, read from the metadata shard: finds queues by number, and lists the queues with a sink."""

import logging
import threading
from collections.abc import Callable, Collection
from math import inf
from typing import Final

from tickwheel import limits
from tickwheel.driver.queue_lookup import NamespaceRecreated
from tickwheel.event_process import QueueRef
from tickwheel.event_process.known_queues import KnownQueues
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import push_config_version
from tickwheel.operations.namespace import fetch_shard_count
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.runtime.time import monotonic_ms

# The pause after a read of all queues, in multiples of the duration of the read, and its maximum. So reads take at most
# a tenth of the time, no matter how often someone creates queues, unless they last longer than 0.2 s.
READ_PAUSE_FACTOR: Final = 9
READ_PAUSE_MAX_MS: Final = 2_000.0

_log = logging.getLogger("tickwheel.driving")


class QueueDirectory:
    """Finds queues by number, and caches their configurations. Thread-safe."""

    def __init__(
        self,
        context: NamespaceContext,
        io: RedisExecutor,
        *,
        has_kafka: bool = False,
        clock: Callable[[], float] = monotonic_ms,
    ) -> None:
        """Without ``has_kafka``, this process cannot serve sinks, and logs a warning for each queue with a sink.

        ``clock`` measures the duration of reads and the pauses between them, in ms. If a test controls the clock, a
        read takes no time, and there are no pauses.
        """
        self._context = context
        self._io = io
        self._has_kafka = has_kafka
        self._clock = clock
        self._next_read_ms = -inf
        # By number, the queues with a sink that the log has named.
        self._warned_queues: dict[int, str] = {}
        self._read_ms = -inf
        self._lock = threading.Lock()
        self._known = KnownQueues(context)

    @property
    def unreadable_rows(self) -> int:
        return self._known.unreadable_rows

    @property
    def read_pause_ms(self) -> float:
        """The time until the next read of all queues should begin; 0 if the read can begin now.

        `lookup` and `queues_with_sinks` do not wait, because their callers have other work: the caller waits first.
        """
        return max(0.0, self._next_read_ms - self._clock())

    def cached(self, number: int) -> QueueRef | None:
        """Return the queue of this number if it is cached, else None. Never call the metadata shard."""
        known = self._known.get(number)
        return None if known is None else known.ref

    def find(self, number: int) -> QueueRef | None:
        """Return the queue of this number, or None if only `lookup` can find it. Reads at most the row of the queue."""
        ref = self.cached(number)
        if ref is None:
            with self._lock:
                ref = self.cached(number)
                if ref is None:
                    self.check_shards()
                    self._io.run(self._known.find(number))
                    if (known := self._known.get(number)) is not None:
                        ref = known.ref
                        self._warn(known.name, known.config)
        return ref

    def lookup(self, number: int) -> QueueRef | None:
        """Return the queue of this number, or None. If the queue is not cached, read the metadata shard first."""
        asked_ms = monotonic_ms()
        ref = self.find(number)
        if ref is None:
            with self._lock:
                # The loops of all shards can ask at the same time, and one read serves them all.
                ref = self.cached(number)
                if ref is None:
                    self._read_since(asked_ms)
                    ref = self.cached(number)
        return ref

    def confirm(self, numbers: Collection[int], wait: Callable[[float], bool]) -> bool:
        """Forget the cached queues of these numbers that have lost their numbers: `lookup` finds the present queues.

        If `find` does not find the queue of a number, wait until `lookup` should read: call ``wait`` with the seconds.
        Return False if ``wait`` returns True, which ends the wait.

        A number is given again only when all numbers were given. While it drives, the event process reads the queues
        again soon after each change, and a relay begins with `refresh`. So as long as the last read has found no number
        of the upper half, no number was given again, and the metadata shard is not called.
        """
        if self._known.highest_number > limits.QUEUES_MAX // 2:
            # With the lock, no other thread stores what it has read before the comparison.
            with self._lock:
                self._io.run(self._known.confirm(numbers))
        # Before the pause, because most queues are found without a read of all queues.
        unknown = [number for number in numbers if self.find(number) is None]
        while any(self.cached(number) is None for number in unknown) and (pause_ms := self.read_pause_ms):
            if wait(pause_ms / 1000):
                return False
        return True

    def refresh(self, since_ms: float, wait: Callable[[float], bool]) -> bool:
        """Read all queues, unless another thread has begun to read them at ``since_ms`` or later.

        Before, wait until the read may begin: call ``wait`` with the seconds. Return False if ``wait`` returns True.
        """
        while self._read_ms < since_ms and (pause_ms := self.read_pause_ms):
            if wait(pause_ms / 1000):
                return False
        with self._lock:
            self._read_since(since_ms)
        return True

    def renew(self, number: int, shard: int) -> QueueRef | None:
        """Read a queue from the metadata shard, and update the version of its configuration that ``shard`` stores.

        Return the queue, or its placeholder if it was deleted. Return None if neither has the number any more:
        `lookup` finds the present queue of the number.
        """
        with self._lock:
            # The rows of other queues are not read: all shards call this for each change of a queue.
            self.check_shards()
            self._io.run(self._known.read_one(number))
            known = self._known.get(number)
        if known is None:
            return None
        self._io.run(push_config_version(self._context, known.name, known.config, [shard]))
        return known.ref

    def queues_with_sinks(self, since_ms: float) -> dict[str, QueueConfig]:
        """Return the queues with a sink, by name, as the metadata shard had them at ``since_ms`` or later.

        ``since_ms`` is a moment of the monotonic clock.
        """
        with self._lock:
            # All shards are notified of a change at the same time, and one read of the metadata shard serves them all.
            self._read_since(since_ms)
            return self._known.with_sinks()

    def check_shards(self) -> bool:
        """Raise NamespaceRecreated if the namespace has another number of shards than this process drives.

        Return False if the metadata shard has lost the number: the namespace can still be recreated.
        """
        shards = self._io.run(fetch_shard_count(self._context))
        if shards is None or shards == self._context.shards:
            return shards is not None
        name = self._context.namespace
        raise NamespaceRecreated(
            f"namespace {name!r} was recreated with {shards} shards, and this event process was started when it had"
            f" {self._context.shards}: restart the event process"
            if shards
            else f"namespace {name!r} is being deleted: end its event processes"
        )

    def _read_since(self, since_ms: float) -> None:
        """Read all queues, unless another thread has begun to read them at ``since_ms`` or later."""
        if self._read_ms < since_ms:
            self._read()

    def _read(self) -> None:
        began, began_ms = monotonic_ms(), self._clock()
        self.check_shards()
        self._io.run(self._known.read_all())
        self._read_ms = began
        ended_ms = self._clock()
        self._next_read_ms = ended_ms + min(READ_PAUSE_FACTOR * (ended_ms - began_ms), READ_PAUSE_MAX_MS)
        with_sinks = self._known.with_sinks()
        # Nothing of deleted queues.
        self._warned_queues = {number: name for number, name in self._warned_queues.items() if name in with_sinks}
        for name, config in with_sinks.items():
            self._warn(name, config)

    def _warn(self, name: str, config: QueueConfig) -> None:
        """Log a warning once if the queue has a sink that this process cannot serve."""
        if self._has_kafka or config.sink is None or self._warned_queues.get(config.number) == name:
            return
        self._warned_queues[config.number] = name
        _log.warning(
            "queue %s has the sink %s, but this event process has no Kafka brokers (--kafka): messages of the queue"
            " stay Pending",
            *(name, config.sink),
        )
