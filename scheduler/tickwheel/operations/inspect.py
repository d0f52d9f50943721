"""Read-only operations: get, counts, lateness, depth and forecast."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from struct import error as StructError
from typing import Any

from tickwheel import limits
from tickwheel.errors import DataLoss, InvalidArgument
from tickwheel.model import message_content, validation
from tickwheel.model.message import MessageView
from tickwheel.model.results import ForecastMinute, Lateness
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import read_shard
from tickwheel.operations.locate import PayloadRead, locate, read_message
from tickwheel.plan import (
    AwaitWakeup,
    ContinueWalk,
    Plan,
    Reply,
    Request,
    Round,
    SubscribeToEnd,
    Unsubscribe,
    pairs_from_flat,
)
from tickwheel.storage import record
from tickwheel.storage.end_topic import end_topic
from tickwheel.storage.keys import queues_key

# The fields of a queue's histograms: buckets by powers of two in ms, and the number of delivered messages with a
# deadline that the caller set.
BUCKET = re.compile(rb"(late|missed):[0-9]{1,2}|deadlines")
_STATES = [state.label for state in record.State]
ENDED = [record.State.COMPLETED.label, record.State.CANCELLED.label, record.State.ERRORED.label]
# If an announcement was lost, a waiting call notices the end of its message after this number of seconds.
RECHECK_S = 10.0


class EndWait:
    """Reads a message once it has ended, or after ``wait_ms``.

    The plan sleeps until the end is announced (`lua/_ended.lua`). It does not poll. While it waits, it neither reads
    nor keeps a payload above 1 KiB: only the read that ends the wait has the payload, which is that of the same moment
    as the state.
    """

    def __init__(
        self,
        context: NamespaceContext,
        queue: str,
        id_: str,
        exclusive_value: str | None,
        wait_ms: int,
        *,
        reads_payload: bool = True,
        caller: str = "",
    ) -> None:
        """Unless ``reads_payload`` is true, a large payload is never read: one that is not part of the record.

        ``caller``: see `SubscribeToEnd`.
        """
        self._context = context
        self._queue = queue
        self._message = id_, exclusive_value
        self._wait_ms = wait_ms
        self._reads_payload = reads_payload
        self._caller = caller
        self._waits = True
        self._waiter: Any = None

    def plan(self) -> Plan[MessageView]:
        """Return a snapshot of the message. Raises MessageNotFound, also if the message is removed during the wait."""
        if (view := (yield from self._read(is_last=not self._wait_ms))) is not None:
            return view
        until = time.monotonic() + self._wait_ms / 1000
        shard, raw = yield from locate(self._context, self._queue, *self._message)
        config = yield from self._context.config(self._queue)
        topic, field = end_topic(self._queue, shard), config.number.to_bytes(2) + raw
        waiter = self._waiter = yield SubscribeToEnd(topic, field, self._caller)
        try:
            while True:
                # Subscribe first, then read, so that an end in between is not missed.
                left = until - time.monotonic() if self._waits else 0
                if (view := (yield from self._read(is_last=left <= 0))) is not None:
                    return view
                yield AwaitWakeup(waiter, min(left, RECHECK_S))
        finally:
            self._waiter = None
            yield Unsubscribe(waiter)

    def cancel_wait(self) -> None:
        """End the wait after one more read, even if the wait has not started yet."""
        self._waits = False
        if self._waiter is not None:
            self._waiter.wake()

    def _read(self, *, is_last: bool) -> Plan[MessageView | None]:
        """Return a snapshot of the message if it has ended or the read ``is_last``, and otherwise None."""
        payload = PayloadRead.ALWAYS if is_last else PayloadRead.IF_ENDED
        if not self._reads_payload:
            payload = PayloadRead.NEVER
        id_, exclusive_value = self._message
        raw, stored, body = yield from read_message(self._context, self._queue, id_, exclusive_value, payload)
        view = to_message_view(self._queue, raw, stored, body, exclusive_value is not None)
        return view if is_last or view.state in ENDED else None


@contextmanager
def raise_if_damaged(queue: str, raw_name: bytes) -> Iterator[None]:
    """Turn an error in decoding the record of a message into a DataLoss that names the message."""
    try:
        yield
    except (ValueError, IndexError, StructError) as error:
        raise DataLoss(
            f"message {raw_name!r} of queue {queue!r} is damaged: {error}; run `tickwheel doctor` to list all damage"
        ) from error


def decode_record(queue: str, raw_name: bytes, stored: bytes, body: bytes = b"") -> record.Record:
    """Return the decoded record of a message. Raises DataLoss if the record is damaged."""
    with raise_if_damaged(queue, raw_name):
        return record.decode(stored, body)


def to_message_view(queue: str, raw_name: bytes, stored: bytes, body: bytes, exclusive: bool) -> MessageView:
    """Return the public view of a record. Raises DataLoss if the record is damaged."""
    with raise_if_damaged(queue, raw_name):
        id_, value = record.split_name(raw_name, exclusive)
    message = decode_record(queue, raw_name, stored, body)
    completed = message.state is record.State.COMPLETED
    return MessageView(
        id=id_,
        queue=queue,
        state=message.state.label,
        payload=message.payload,
        metadata=message.metadata,
        due=validation.from_ms(message.due_ms),
        deadline=validation.from_ms(message.deadline_ms),
        attempt=message.attempts,
        version=message.version,
        exclusive_value=value,
        worker=message.worker,
        error="" if completed else message.error,
        until=None if message.state is record.State.PENDING else validation.from_ms(message.until_ms),
        result=message.error if completed and message.flags & record.ERROR else None,
    )


def counts(context: NamespaceContext, queue: str) -> Plan[dict[str, int]]:
    """Return the number of messages in each state, over all shards. With several shards, this is not a snapshot."""
    return (yield from counts_and_lateness(context, queue))[0]


def lateness(context: NamespaceContext, queue: str) -> Plan[Lateness]:
    """Return the histograms of lateness and missed deadlines, over all shards."""
    return (yield from counts_and_lateness(context, queue))[1]


def counts_and_lateness(context: NamespaceContext, queue: str) -> Plan[tuple[dict[str, int], Lateness]]:
    """Return the results of `counts` and `lateness`, with one call to each shard."""
    totals = dict.fromkeys(_STATES, 0)
    counted = yield from _read_counters(context, queue)
    for states, _ in counted:
        for state, count in states.items():
            totals[state.label] += count
    return totals, _sum_buckets(item for _, late in counted for item in late.items())


def histogram(fields: Iterable[tuple[bytes, bytes]]) -> Lateness:
    """Return the sum of stored histograms, given as fields and values. Raises ValueError for an unknown field."""
    return _sum_buckets((_parse_bucket(field), int(count)) for field, count in fields)


def depth(context: NamespaceContext, queue: str, where: Mapping[str, str] | None) -> Plan[int]:
    """Return the number of Pending messages that carry every pair of ``where``.

    This includes messages that wait for other messages of the same exclusive value. Raises InvalidArgument if a key is
    not indexed.
    """
    filters = {} if where is None else message_content.filters(where)
    if not filters:
        return (yield from counts(context, queue))["pending"]
    config = yield from context.config(queue)
    if config.indexed is not None and not filters.keys() <= set(config.indexed):
        # Another program may have recreated the queue with other indexed keys.
        config = yield from context.fetch_config(queue)
    for key in filters:
        if config.indexed is not None and key not in config.indexed:
            raise InvalidArgument(
                f"queue {queue!r} does not index {key!r}: it was created with indexed={list(config.indexed)}"
            )
    packed_filters, total = record.encode_filters(filters), 0
    for shard in range(context.shards):
        cursor = b""
        while True:
            reply = yield from read_shard(context, queue, shard, "depth", [packed_filters, limits.CALL_ENTRIES, cursor])
            part, cursor = reply.value
            total += part
            if not cursor:
                break
            yield ContinueWalk()
    return total


def forecast(context: NamespaceContext, queue: str, minutes: int) -> Plan[list[ForecastMinute]]:
    """Return the number of messages that are due in each of the next ``minutes`` minutes, the current minute first.

    Raises InvalidArgument if the queue keeps no forecast.
    """
    minutes = validation.integer("minutes", minutes, 1, limits.FORECAST_MINUTES_MAX)
    # Another program may have changed the setting.
    config = yield from context.fetch_config(queue)
    if not config.forecast:
        raise InvalidArgument(
            f"queue {queue!r} keeps no forecast: create it with forecast=True, which counts messages per minute"
        )
    requests = [Request(shard, context.call("forecast", shard, queue, [minutes])) for shard in range(context.shards)]
    size = limits.FORECAST_ROUND // minutes
    first, totals = 0, [0] * minutes
    for begin in range(0, len(requests), size):
        replies: list[Reply] = yield Round(requests[begin : begin + size])
        first = first or int.from_bytes(replies[0].value[0]) // 60_000
        totals = [sum(column) for column in zip(totals, *(reply.value[1:] for reply in replies), strict=True)]
    return [ForecastMinute(validation.from_ms((first + n) * 60_000), count) for n, count in enumerate(totals)]


def _sum_buckets(buckets: Iterable[tuple[tuple[bytes, int], int]]) -> Lateness:
    promoted: dict[int, int] = {}
    missed: dict[int, int] = {}
    deadlines = 0
    for (kind, exponent), count in buckets:
        if kind == b"deadlines":
            deadlines += count
        else:
            by_end = promoted if kind == b"late" else missed
            by_end[2**exponent] = by_end.get(2**exponent, 0) + count
    return Lateness(dict(sorted(promoted.items())), dict(sorted(missed.items())), deadlines)


def _read_counters(
    context: NamespaceContext, queue: str
) -> Plan[list[tuple[dict[record.State, int], dict[tuple[bytes, int], int]]]]:
    """Return two dicts for each shard.

    The first maps each state to its number of messages. The second maps each histogram bucket, as a pair of kind and
    exponent, to its count. Raises NamespaceGone: a deletion hides the number of shards before it removes counters.
    """
    yield from context.config(queue)
    requests = [Request(shard, context.call("counts", shard, queue, [])) for shard in range(context.shards)]
    row_request = Request(0, command=("HGET", queues_key(context.namespace), queue))
    row, shards, *replies = yield Round([row_request, context.shards_request(), *requests])
    context.check_shards(shards)
    if row.value is None:
        # Another program has deleted the queue that is cached. This raises the error.
        yield from context.fetch_config(queue)
    counters = []
    for shard, reply in enumerate(replies):
        _, states, late = reply.value
        try:
            counters.append(
                (
                    {record.State(int(state)): int(count) for state, count in pairs_from_flat(states)},
                    {_parse_bucket(field): int(count) for field, count in pairs_from_flat(late)},
                )
            )
        except ValueError as error:
            raise DataLoss(
                f"counters of queue {queue!r} are damaged on shard {shard}: {error}; run `tickwheel doctor` to list all"
                " damage"
            ) from error
    return counters


def _parse_bucket(field: bytes) -> tuple[bytes, int]:
    if not BUCKET.fullmatch(field):
        raise ValueError(f"unknown bucket {field!r}")
    kind, _, exponent = field.partition(b":")
    return kind, int(exponent or 0)
