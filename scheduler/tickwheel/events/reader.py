"""Reads the topic of transitions: each transition once, in order for each message."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Final

from tickwheel.errors import TickwheelError, Unavailable
from tickwheel.events.deduplication import REMEMBERED, Deduplicator, Gap
from tickwheel.events.encoding import Transition, decode
from tickwheel.events.partition_offsets import PartitionOffsets
from tickwheel.kafka.library import SINK_HEADERS, TOPIC, build_settings, kafka_library, library_log
from tickwheel.model import validation
from tickwheel.model.validation import Duration
from tickwheel.runtime.log_throttle import LogThrottle

STARTS: Final = ("earliest", "latest")
_POLL_S: Final = 0.2
_ANSWER_S: Final = 10.0
_IDLE_MS_MAX: Final = 365 * 86_400_000
_MESSAGES_MAX: Final = 10**9

_log = logging.getLogger("tickwheel.events")
_log_throttle = LogThrottle()


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record that the reader skipped because it is not a transition. ``reason`` is the text of the error.

    The record may have been a transition before someone damaged it, so the history that was read may be incomplete.
    """

    topic: str
    partition: int
    offset: int
    value: bytes | None
    reason: str


def read(
    bootstrap: str,
    *,
    topic: str = TOPIC,
    group: str | None = None,
    start: str = "earliest",
    idle: Duration | None = None,
    on_gap: Callable[[Gap], None] | None = None,
    on_unreadable: Callable[[UnreadableRecord], None] | None = None,
    remembered: int = REMEMBERED,
    kafka: Mapping[str, str] | None = None,
) -> Iterator[Transition]:
    """Return an iterator over the transitions that the relay publishes: each once, in order for each message.

    ``start`` is ``earliest`` or ``latest``. It applies to readers without a ``group``, and to new groups. A ``group``
    shares the partitions among its readers and continues at its last position. A transition counts as read when the
    caller requests the next transition. After a reader was killed, its last transitions may be read again. ``idle``
    ends the iteration when no record has arrived for this time. The time before the first assignment of partitions does
    not count. By default the iteration does not end.

    ``on_gap`` is called before a transition whose predecessor is missing, because events were dropped at the limit of
    the outbox. Gaps are also logged. Transitions that another reader of the group has read do not count as gaps.
    ``remembered`` is the number of messages whose last transition is kept to recognize duplicates.

    A record that is not a transition in a known format, or that a sink has written, is logged and skipped.
    ``on_unreadable`` is called before the reader continues, so a caller that needs the whole history can count such
    records. An error that ``on_unreadable`` raises ends the iteration, and the group reads the record again.

    ``kafka`` contains further settings of librdkafka, by name. Raises TickwheelError if confluent-kafka or the topic is
    missing, InvalidArgument for invalid arguments, and Unavailable if no broker answers at the start.
    """
    validation.one_of("start", start, STARTS)
    idle_ms = None if idle is None else validation.duration_ms("idle", idle, 1, _IDLE_MS_MAX)
    validation.integer("remembered", remembered, 1, _MESSAGES_MAX)
    library = kafka_library()
    consumer_settings = build_settings(bootstrap, kafka or {}) | {
        "group.id": group or "tickwheel-events-read",
        "auto.offset.reset": start,
        "enable.auto.commit": str(group is not None).lower(),
        "enable.auto.offset.store": "false",
    }
    # Connect now, so that errors are raised here and not when the caller requests the first transition.
    partition_offsets = PartitionOffsets()
    consumer = _open_consumer(library, consumer_settings, topic, group, start, partition_offsets)
    return _read(consumer, group, partition_offsets, idle_ms, on_gap, on_unreadable, Deduplicator(remembered))


def _read(
    consumer: Any,
    group: str | None,
    partition_offsets: PartitionOffsets,
    idle_ms: int | None,
    on_gap: Callable[[Gap], None] | None,
    on_unreadable: Callable[[UnreadableRecord], None] | None,
    deduplicator: Deduplicator,
) -> Iterator[Transition]:
    last_active = time.monotonic()
    try:
        while True:
            # Poll records one by one: a batch could contain records of partitions that were revoked in the meantime.
            record = consumer.poll(_POLL_S)
            now = time.monotonic()
            if record is None:
                if not partition_offsets.has_assignment:
                    last_active = now
                elif idle_ms is not None and now - last_active > idle_ms / 1000:
                    return
                continue
            last_active = now
            if record.error() is not None:
                # The library reconnects without help when brokers are reachable again.
                _log.warning("Kafka: %s", record.error().str())
                continue
            partition = record.partition()
            if partition_offsets.advance(partition, record.offset()):
                deduplicator.forget(partition)
            transition = _decode_or_skip(record, on_unreadable)
            if transition is not None and deduplicator.is_new(transition):
                gap = deduplicator.record(transition, partition)
                if gap is not None:
                    _log.warning("transitions are missing after version %d and before %s", gap.last, transition)
                    if on_gap is not None:
                        on_gap(gap)
                yield transition
                last_active = time.monotonic()
            if group is not None:
                # The caller has requested the next transition, so this one counts as read.
                consumer.store_offsets(message=record)
    finally:
        consumer.close()


def _decode_or_skip(record: Any, on_unreadable: Callable[[UnreadableRecord], None] | None) -> Transition | None:
    """Return the transition in a record. If the record has none, log it, report it, and return None."""
    value = record.value()
    try:
        if any(name.startswith(SINK_HEADERS) for name in _header_names(record)):
            raise TickwheelError("not a transition of Tickwheel: its headers show that a sink has written the record")
        return decode(value)
    except TickwheelError as error:
        unreadable = UnreadableRecord(record.topic(), record.partition(), record.offset(), value, str(error))
    # The writers of the topic decide how many such records there are, so repeated lines have a lower level.
    _log.log(
        _log_throttle.level(f"unreadable {unreadable.topic} {unreadable.partition}"),
        "record %d of partition %d of topic %s is skipped: %s",
        *(unreadable.offset, unreadable.partition, unreadable.topic, unreadable.reason),
    )
    if on_unreadable is not None:
        on_unreadable(unreadable)
    return None


# If the name of a header is not UTF-8, the method returns a broken list, and sets an exception. Python does not notice
# the exception if it has optimized the call (from 3.11 on), and crashes when it reads the list. It does not optimize
# this call, and raises SystemError.
_read_headers: Final = methodcaller("headers")


def _header_names(record: Any) -> list[str]:
    """Return the names of a record's headers. Raises TickwheelError if one of them is not UTF-8."""
    try:
        return [name for name, _ in _read_headers(record) or ()]
    except (SystemError, UnicodeDecodeError) as error:
        raise TickwheelError("not a transition of Tickwheel: the name of a header is not UTF-8") from error


def _open_consumer(
    library: Any,
    consumer_settings: dict[str, str],
    topic: str,
    group: str | None,
    start: str,
    partition_offsets: PartitionOffsets,
) -> Any:
    """Return a consumer of the topic. ``partition_offsets`` records its assignments; the first takes some seconds."""
    try:
        consumer = library.Consumer(consumer_settings, logger=library_log)
    except library.KafkaException as error:
        raise TickwheelError(f"Kafka's client rejects its settings: {error.args[0].str()}") from error
    try:
        if group is not None:
            # Subscribe first: the group assigns partitions while the topic is checked.
            consumer.subscribe(
                [topic],
                on_assign=lambda _, assigned: partition_offsets.assign(item.partition for item in assigned),
            )
        metadata = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        if metadata.error is not None:
            raise TickwheelError(f"topic {topic!r} cannot be read: {metadata.error.str()}")
        if group is not None:
            return consumer
        # Without a group, this reader reads all partitions, and no offsets are stored.
        offset = library.OFFSET_BEGINNING if start == "earliest" else library.OFFSET_END
        consumer.assign([library.TopicPartition(topic, partition, offset) for partition in metadata.partitions])
        partition_offsets.has_assignment = True
        return consumer
    except library.KafkaException as error:
        consumer.close()
        raise Unavailable(f"no Kafka broker answered: {error.args[0].str()}", may_have_happened=False) from error
    except BaseException:
        consumer.close()
        raise
