"""Publishes the outbox of one shard, in order, and cuts off what the broker acknowledged: at least once, never a gap.

At any failure it begins again from the start of the outbox. So what a broker gets twice it gets in the same order, and
all of it before anything newer.
"""

import logging
from collections.abc import Callable
from threading import Event
from typing import Any, Final

from redis import Redis

from tickwheel.driver.commands import Command, ReadStream, Refused, WaitForReplicas
from tickwheel.driver.fenced_shard import Shard
from tickwheel.driver.queue_lookup import Queues
from tickwheel.driver.server_clock import monotonic_ms
from tickwheel.driver.shard_connection import Link
from tickwheel.driver.stats import WheelStats
from tickwheel.errors import NotDurable, TickwheelError
from tickwheel.events.encoding import encode
from tickwheel.kafka.producer import Broker, Polled
from tickwheel.operations.context import outbox_of
from tickwheel.relay.in_flight_windows import Flight
from tickwheel.relay.outbox_level import Level, level
from tickwheel.runtime.wake_pipe import WakePipe
from tickwheel.storage import transition as transitions
from tickwheel.storage.scripts import bind, load
from tickwheel.storage.transition import Transition

# Reading and cutting cost the server by the call: at a low rate they wait for more. Kafka's readers do not notice.
READ_MS: Final = 20.0
CUT_MS: Final = 200.0
LOOK_MS: Final = 1_000.0
_QUEUE_FULL_S: Final = 0.02
_REPLICAS_MS: Final = 1_000

_log = logging.getLogger("tickwheel.relay")


class Relay:
    """The relay of one shard under one fence."""

    what = "relay"

    def __init__(
        self,
        connect: Callable[[int], "Redis"],
        namespace: str,
        shard: Shard,
        *,
        queues: Queues,
        broker: Broker,
        stats: WheelStats,
        history: int,
        replicas: int = 0,
    ) -> None:
        """``history`` is the namespace's; ``replicas`` is how many must have what is published."""
        self._connect = connect
        self._namespace = namespace
        self._shard = shard
        self._queues = queues
        self._broker = broker
        self._stats = stats
        self._limit, self._drops = outbox_of(history)
        self._replicas = replicas
        self._level = Level.LOW
        self._wake = WakePipe()
        self._trim = shard.script("trim")
        self._looked_at = self._cut_at = self._read_at = -LOOK_MS

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._wake.close()
        # Whoever leads next tells them.
        stats = self._stats
        stats.outbox_entries = stats.outbox_bytes = stats.outbox_dropped = stats.outbox_age_ms = 0

    def run(self, stopping: Event, works: Callable[[], None]) -> None:
        """Publish and cut until told to stop. Raises at the first failure."""
        link = Link(self._connect(self._shard.number), self._wake.fileno())
        try:
            self._run(link, stopping, works)
        finally:
            link.close()

    def _run(self, link: Link, stopping: Event, works: Callable[[], None]) -> None:
        producer, flight, after = self._broker.producer(), Flight(self._wake.set), b"0-0"
        while True:
            self._wake.clear()
            _check(producer)
            refusal = flight.error()
            if refusal is not None:
                self._broker.give_up(producer)
                raise TickwheelError(f"Kafka did not take an event: {refusal}")
            now = monotonic_ms()
            if flight.has_acknowledged and (now >= self._cut_at + CUT_MS or flight.is_full or stopping.is_set()):
                self._cut(link, flight)
                works()
            else:
                self._look(link)
            if stopping.is_set():
                return
            until = self._looked_at + LOOK_MS
            if flight.has_acknowledged:
                until = min(until, self._cut_at + CUT_MS)
            if flight.is_full:
                self._wake.wait(until - now)
            elif now < self._read_at + READ_MS:
                self._wake.wait(min(until, self._read_at + READ_MS) - now)
            else:
                count = flight.count
                entries = link.execute(ReadStream(self._shard.keys["events"], after, count, until))
                if entries:
                    after = entries[-1][0]
                    self._publish(link, producer, flight, entries, stopping)
                    # More is there after a full answer.
                    self._read_at = monotonic_ms() if len(entries) < count else -READ_MS

    def _publish(
        self, link: Link, producer: Polled, flight: Flight, entries: list[tuple[bytes, bytes]], stopping: Event
    ) -> None:
        told = [self._decoded(entry_id, entry) for entry_id, entry in entries]
        self._until_durable(link)
        window = flight.add(entries, sum(map(len, told)))
        for happened in told:
            for key, value in encode(self._namespace, self._queue(happened[0].queue_number), happened):
                while not self._produced(producer, key, value, window.delivered):
                    self._look(link)
                    if stopping.wait(_QUEUE_FULL_S):
                        return

    def _produced(self, producer: Polled, key: bytes, value: bytes, delivered: Callable[[Any, Any], None]) -> bool:
        _check(producer)
        try:
            producer.produce(self._broker.topic, value, key, on_delivery=delivered)
        except BufferError:
            return False
        except self._broker.errors as error:
            self._broker.give_up(producer)
            raise TickwheelError(f"Kafka's client did not take an event: {error}") from error
        return True

    def _decoded(self, entry_id: bytes, entry: bytes) -> list[Transition]:
        try:
            return transitions.decode(entry)
        except ValueError as error:
            raise TickwheelError(f"entry {entry_id.decode()} of the outbox is damaged: {error}") from error

    def _queue(self, number: int) -> str:
        queue = self._queues.lookup(number)
        if queue is None:
            raise TickwheelError(f"there are events of queue number {number}, which home does not know")
        return queue.name

    def _until_durable(self, link: Link) -> None:
        """What was read just now is on as many replicas as asked for: a reader of Kafka never knows more than them."""
        if self._replicas:
            self._ask(link, bind(load("barrier"), {"hash": self._shard.keys["clock"]}, []))
            reached = self._ask(link, WaitForReplicas(self._replicas, _REPLICAS_MS))
            if reached < self._replicas:
                raise NotDurable(
                    f"{reached} of {self._replicas} replicas have the newest events: they are not published"
                )

    def _cut(self, link: Link, flight: Flight) -> None:
        cut = flight.take_acknowledged()
        assert cut is not None
        self._cut_at = monotonic_ms()
        if self._tell(link, cut.first, cut.rest, cut.size) < 0:
            raise TickwheelError("the outbox was cut by somebody else")
        self._stats.relayed += cut.transitions

    def _look(self, link: Link) -> None:
        """Take down what the outbox has, where that was not done for LOOK_MS."""
        if monotonic_ms() >= self._looked_at + LOOK_MS:
            self._tell(link, b"", b"", 0)

    def _tell(self, link: Link, first: bytes, rest: bytes, size: int) -> int:
        """Cut, and take down what is left."""
        call = bind(self._trim, self._shard.keys, [self._shard.fence, first, rest, size])
        cut, entries, left, dropped, age_ms = self._ask(link, call)
        stats = self._stats
        stats.outbox_entries, stats.outbox_bytes, stats.outbox_dropped, stats.outbox_age_ms = (
            entries,
            left,
            dropped,
            age_ms,
        )
        self._looked_at = monotonic_ms()
        before, self._level = self._level, level(left, self._limit, self._level)
        if self._level is not before:
            self._level.log(_log, self._shard.number, left, self._limit, drops=self._drops)
        return int(cut)

    def _ask(self, link: Link, command: Command) -> Any:
        try:
            return link.execute(command)
        except Refused as refusal:
            raise self._shard.refusal(refusal) from refusal


def _check(producer: Polled) -> None:
    if producer.is_closed:
        raise TickwheelError("the producer that the shards share has failed another shard")
