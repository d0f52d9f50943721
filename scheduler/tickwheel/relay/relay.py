"""Publishes the outbox of one shard, in order, and trims acknowledged entries: at least once, without gaps.

After any failure the relay starts again from the beginning of the outbox. So the broker gets the duplicates in the
order of the originals, and before all newer events.

A *window* is a group of entries that one call has read. Several windows can be in flight to the broker. No entry is
lost, because the outbox is trimmed only up to the first window with a transition that is not acknowledged.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

from redis import Redis

from tickwheel.driver.batch_size import AdaptiveBatchSize
from tickwheel.driver.commands import Command, ReadStream, WaitForReplicas
from tickwheel.driver.corrupt_entries import CorruptEntries
from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.queue_lookup import RelayQueueLookup
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.driver.stats import WheelStats
from tickwheel.errors import NotDurable, TickwheelError
from tickwheel.events.encoding import encode
from tickwheel.kafka.producer import KafkaProducers, PolledProducer
from tickwheel.operations.context import outbox_of
from tickwheel.relay.outbox_level import OutboxLevel, next_level
from tickwheel.runtime.time import monotonic_ms
from tickwheel.runtime.wake_pipe import WakePipe
from tickwheel.storage.script_errors import ScriptError
from tickwheel.storage.scripts import bind, load
from tickwheel.storage.stream_id import id_after
from tickwheel.storage.transition import OutboxTransition, UnknownFormat, decode as decode_entry, queue_number_of

# The approximate number of bytes in a window, and the maximum number of windows in flight. After a failure, about the
# product of both may be sent twice.
WINDOW_BYTES: Final = 256 * 1024
WINDOWS: Final = 4
# Each read and each trim is a call to the server. At a low rate of events the relay waits for more events between
# calls; readers of Kafka do not notice the delay.
READ_INTERVAL_MS: Final = 20.0
TRIM_INTERVAL_MS: Final = 200.0
STATS_INTERVAL_MS: Final = 1_000.0
_QUEUE_FULL_S: Final = 0.02
_REPLICAS_MS: Final = 1_000

_log = logging.getLogger("tickwheel.relay")


@dataclass(frozen=True, slots=True)
class TrimRange:
    """A range of entries to trim after the broker has acknowledged them: the arguments of `lua/trim_outbox.lua`.

    ``first`` is the id of the first entry to remove, ``rest`` the lowest id to keep. ``size`` is the number of bytes.
    """

    first: bytes
    rest: bytes
    size: int
    transitions: int


class Window:
    """Entries that one call has read. Only the producer's thread calls `on_delivery`."""

    __slots__ = ("_left", "_wake", "error", "trim_range")

    def __init__(self, trim_range: TrimRange, wake: Callable[[], None]) -> None:
        self.trim_range = trim_range
        self.error: Any = None
        self._left = trim_range.transitions
        self._wake = wake

    @property
    def is_acknowledged(self) -> bool:
        return self._left == 0

    def on_delivery(self, error: Any, _: Any) -> None:
        """Record that the broker has acknowledged one transition of the window, or the error of this transition."""
        if error is None:
            self._left -= 1
        else:
            self.error = error
        if self._left == 0 or error is not None:
            self._wake()


class InFlightWindows:
    """The windows in flight, the oldest first."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._windows: deque[Window] = deque()
        self._batch_size = AdaptiveBatchSize(WINDOW_BYTES)

    @property
    def is_full(self) -> bool:
        return len(self._windows) >= WINDOWS

    @property
    def count(self) -> int:
        """The number of entries to read next."""
        return self._batch_size.count

    def add(self, entries: Sequence[tuple[bytes, bytes]], transitions: int) -> Window:
        """Add the entries that follow the last window, with the number of their transitions. Return the new window."""
        size = sum(len(entry) for _, entry in entries)
        self._batch_size.observe(len(entries), size)
        window = Window(TrimRange(entries[0][0], id_after(entries[-1][0]), size, transitions), self._wake)
        self._windows.append(window)
        return window

    @property
    def has_acknowledged(self) -> bool:
        """Whether the oldest window is acknowledged, so the outbox can be trimmed."""
        return bool(self._windows) and self._windows[0].is_acknowledged

    def take_acknowledged(self) -> TrimRange | None:
        """Remove all windows before the first unacknowledged one. Return them as one range to trim, if any."""
        done: list[TrimRange] = []
        while self.has_acknowledged:
            done.append(self._windows.popleft().trim_range)
        if not done:
            return None
        return TrimRange(done[0].first, done[-1].rest, sum(c.size for c in done), sum(c.transitions for c in done))

    def first_error(self) -> Any:
        """Return the error of the oldest window with a rejected transition; None if there is no such window."""
        return next((window.error for window in self._windows if window.error is not None), None)


class Relay:
    """The relay of one shard, with one fence."""

    label = "relay"

    def __init__(
        self,
        connect: Callable[[int], "Redis"],
        namespace: str,
        shard: FencedShard,
        *,
        queues: RelayQueueLookup,
        producers: KafkaProducers,
        stats: WheelStats,
        history: int,
        replicas: int = 0,
    ) -> None:
        """``history`` is the number that encodes the history and the outbox settings of the namespace. ``replicas`` is
        the number of replicas that must have an event before the event is published.
        """
        self._connect = connect
        self._namespace = namespace
        self._shard = shard
        self._queues = queues
        self._producers = producers
        self._stats = stats
        self._limit, self._drops = outbox_of(history)
        self._replicas = replicas
        self._corrupt_entries = CorruptEntries(shard.number, stats)
        self._level = OutboxLevel.LOW
        self._wake = WakePipe()
        self._trim_script = shard.script("trim_outbox")
        self._stats_at = self._trimmed_at = self._read_at = -STATS_INTERVAL_MS
        self._oldest_id, self._oldest_since = b"", 0.0

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._wake.close()
        # From now on the next leader reports the metrics of the outbox.
        stats = self._stats
        stats.outbox_entries = stats.outbox_bytes = stats.outbox_dropped = stats.outbox_age_ms = 0

    def run(self, stopping: Event, on_progress: Callable[[], None]) -> None:
        """Publish and trim until ``stopping`` is set. Raises the first error."""
        # What a standby has read can be older than the second use of a number (`confirm`).
        if not self._queues.refresh(monotonic_ms(), stopping.wait):
            return
        with closing(ShardConnection(self._connect(self._shard.number), self._wake.fileno())) as connection:
            self._run(connection, stopping, on_progress)

    def _run(self, connection: ShardConnection, stopping: Event, on_progress: Callable[[], None]) -> None:
        producer, windows, after = self._producers.producer(), InFlightWindows(self._wake.set), b"0-0"
        while True:
            self._wake.clear()
            _check_open(producer)
            error = windows.first_error()
            if error is not None:
                self._producers.discard(producer, error)
                raise TickwheelError(f"Kafka rejected an event: {error}")
            now = monotonic_ms()
            if windows.has_acknowledged and (
                now >= self._trimmed_at + TRIM_INTERVAL_MS or windows.is_full or stopping.is_set()
            ):
                self._trim(connection, windows)
                on_progress()
            else:
                self._refresh_stats(connection)
            if stopping.is_set():
                return
            until = self._stats_at + STATS_INTERVAL_MS
            if windows.has_acknowledged:
                until = min(until, self._trimmed_at + TRIM_INTERVAL_MS)
            if windows.is_full:
                self._wake.wait(until - now)
            elif now < self._read_at + READ_INTERVAL_MS:
                self._wake.wait(min(until, self._read_at + READ_INTERVAL_MS) - now)
            else:
                count = windows.count
                entries = connection.execute(ReadStream(self._shard.keys["events"], after, count, until))
                if entries:
                    after = entries[-1][0]
                    self._publish(connection, producer, windows, entries, stopping)
                    # After a full reply there is probably more to read: read again without a pause.
                    self._read_at = monotonic_ms() if len(entries) < count else -READ_INTERVAL_MS

    def _publish(
        self,
        connection: ShardConnection,
        producer: PolledProducer,
        windows: InFlightWindows,
        entries: list[tuple[bytes, bytes]],
        stopping: Event,
    ) -> None:
        # No queue with events in the outbox is deleted. So the queue that has the number now is that of the event.
        if not self._queues.confirm({queue_number_of(entry) for _, entry in entries}, stopping.wait):
            return  # the relay stops
        batches = list(self._readable(entries))
        self._wait_until_durable(connection)
        window = windows.add(entries, sum(len(transitions) for _, transitions in batches))
        for queue, transitions in batches:
            for key, value in encode(self._namespace, queue, transitions):
                while not self._produce(producer, key, value, window.on_delivery):
                    self._refresh_stats(connection)
                    if stopping.wait(_QUEUE_FULL_S):
                        return

    def _produce(
        self, producer: PolledProducer, key: bytes, value: bytes, on_delivery: Callable[[Any, Any], None]
    ) -> bool:
        try:
            producer.produce(self._producers.topic, value, key, on_delivery=on_delivery)
        except BufferError:
            return False
        except self._producers.errors as error:
            self._producers.discard(producer)
            raise TickwheelError(f"Kafka's client rejected an event: {error}") from error
        _check_open(producer)  # a closed producer ignores the event, and the next run reads it again
        return True

    def _readable(self, entries: list[tuple[bytes, bytes]]) -> Iterator[tuple[str, list[OutboxTransition]]]:
        """Yield the queue and the transitions of each entry. Skip entries that no script has written."""
        missing: set[int] = set()
        for entry_id, entry in entries:
            try:
                transitions = decode_entry(entry)
            except UnknownFormat as error:
                raise TickwheelError(
                    f"entry {entry_id.decode()} of the outbox has the format of a later version: upgrade this event"
                    " process. If no program of a later version runs, find out who can write to the keys of the shard,"
                    f" and delete the entry as an administrator of the server (XDEL): {error}"
                ) from error
            except ValueError as error:
                self._corrupt_entries.skip_event(entry_id, entry, str(error))
                continue
            number = transitions[0].queue_number
            name = self._queue_name(number, missing)
            if name is None:
                self._corrupt_entries.skip_event(
                    entry_id, entry, f"the metadata shard does not have its queue, number {number}"
                )
            else:
                yield name, transitions

    def _queue_name(self, number: int, missing: set[int]) -> str | None:
        """Return the name of the queue. Return None, and add the number to ``missing``, if there is no such queue.

        A queue exists before its first event, so a read of the metadata shard after the event finds the queue. One read
        serves all entries of a call. A queue whose configuration is unreadable may have this number.
        """
        queue = self._queues.cached(number) if missing else self._queues.lookup(number)
        if queue is not None:
            return queue.name
        if self._queues.unreadable_rows:
            raise TickwheelError(
                f"the outbox has events of queue number {number}, and the metadata shard has unreadable configurations"
                " of queues, perhaps that of this queue: `tickwheel doctor` lists them"
            )
        missing.add(number)
        return None

    def _wait_until_durable(self, connection: ShardConnection) -> None:
        """Wait until enough replicas have the entries just read, so no reader of Kafka is ahead of the replicas."""
        if self._replicas:
            self._execute(connection, bind(load("replication_barrier"), {"hash": self._shard.keys["clock"]}, []))
            reached = self._execute(connection, WaitForReplicas(self._replicas, _REPLICAS_MS))
            if reached < self._replicas:
                raise NotDurable(
                    f"only {reached} of {self._replicas} replicas have the newest events; these are not published yet"
                )

    def _trim(self, connection: ShardConnection, windows: InFlightWindows) -> None:
        trim_range = windows.take_acknowledged()
        assert trim_range is not None
        self._trimmed_at = monotonic_ms()
        if self._trim_and_measure(connection, trim_range.first, trim_range.rest, trim_range.size) < 0:
            raise TickwheelError("another program has trimmed the outbox")
        self._stats.relayed += trim_range.transitions

    def _refresh_stats(self, connection: ShardConnection) -> None:
        """Refresh the counters of the outbox if they are older than STATS_INTERVAL_MS."""
        if monotonic_ms() >= self._stats_at + STATS_INTERVAL_MS:
            self._trim_and_measure(connection, b"", b"", 0)

    def _trim_and_measure(self, connection: ShardConnection, first: bytes, rest: bytes, size: int) -> int:
        """Trim the outbox and refresh its counters. Return the script's first result: negative if the range is gone."""
        call = bind(self._trim_script, self._shard.keys, [self._shard.fence, first, rest, size])
        trimmed, entries, left, dropped, age_ms, oldest_id = self._execute(connection, call)
        self._stats_at = now = monotonic_ms()
        if oldest_id != self._oldest_id:
            self._oldest_id, self._oldest_since = oldest_id, now
        stats = self._stats
        stats.outbox_entries, stats.outbox_bytes, stats.outbox_dropped = entries, left, dropped
        # If the server's clock was ahead when the entry was added, only the time since it was first found is known.
        stats.outbox_age_ms = max(age_ms, int(now - self._oldest_since)) if oldest_id else 0
        before, self._level = self._level, next_level(left, self._limit, self._level)
        if self._level is not before:
            self._level.log_change(_log, self._shard.number, left, self._limit, drops=self._drops)
        return int(trimmed)

    def _execute(self, connection: ShardConnection, command: Command) -> Any:
        try:
            return connection.execute(command)
        except ScriptError as error:
            raise error.to_tickwheel_error(f"shard {self._shard.number}") from error


def _check_open(producer: PolledProducer) -> None:
    if producer.is_closed:
        raise TickwheelError("the producer that all shards share was closed after an error on another shard")
