"""What only reads: get, counts, lateness, depth, forecast, and a walk over all messages."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from struct import error as StructError

from tickwheel import limits
from tickwheel.errors import InvalidArgument, MessageNotFound, TickwheelError
from tickwheel.model import validation
from tickwheel.model.message import MessageView
from tickwheel.model.results import ForecastMinute, Lateness
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import read_shard
from tickwheel.operations.locate import locate
from tickwheel.plan import Plan, Request, Round, pairs_from_flat
from tickwheel.storage import record
from tickwheel.storage.record import State

# The fields of a queue's histograms: powers of two in ms, and how many had a deadline.
BUCKET = re.compile(rb"(late|missed):[0-9]{1,2}|deadlines")
_STATES = [state.label for state in State]


def get(context: NamespaceContext, queue: str, id_: str, exclusive_value: str | None) -> Plan[MessageView]:
    """One message as it stands."""
    shard, raw = yield from locate(context, queue, id_, exclusive_value)
    reply = yield from read_shard(context, queue, shard, "get", [raw])
    _, stored, body = reply.value
    if not stored:
        raise MessageNotFound(
            f"queue {queue!r} has no message {id_!r}: it was never enqueued, or its retention is over"
        )
    return to_message_view(queue, raw, stored, body, exclusive_value is not None)


@contextmanager
def raise_if_damaged(queue: str, raw_name: bytes) -> Iterator[None]:
    """Whatever is wrong with the record of a message raises TickwheelError."""
    try:
        yield
    except (ValueError, IndexError, StructError) as error:
        raise TickwheelError(
            f"message {raw_name!r} of queue {queue!r} is damaged: {error}; `tickwheel doctor` names all damage"
        ) from error


def decode_record(queue: str, raw_name: bytes, stored: bytes, body: bytes = b"") -> record.Record:
    """The record of a message. Raises TickwheelError where it is damaged."""
    with raise_if_damaged(queue, raw_name):
        return record.decode(stored, body)


def to_message_view(queue: str, raw_name: bytes, stored: bytes, body: bytes, exclusive: bool) -> MessageView:
    """A record as callers see it. Raises TickwheelError where it is damaged."""
    with raise_if_damaged(queue, raw_name):
        id_, value = record.split_name(raw_name, exclusive)
    message = decode_record(queue, raw_name, stored, body)
    completed = message.state is State.COMPLETED
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
        until=None if message.state is State.PENDING else validation.from_ms(message.until_ms),
        result=message.error if completed and message.flags & record.ERROR else None,
    )


def counts(context: NamespaceContext, queue: str) -> Plan[dict[str, int]]:
    """How many messages are in each state, over all shards (not a snapshot where there are several)."""
    return (yield from counts_and_lateness(context, queue))[0]


def lateness(context: NamespaceContext, queue: str) -> Plan[Lateness]:
    """The histograms of lateness and missed deadlines, over all shards."""
    return (yield from counts_and_lateness(context, queue))[1]


def counts_and_lateness(context: NamespaceContext, queue: str) -> Plan[tuple[dict[str, int], Lateness]]:
    """Both, which one call reads."""
    totals = dict.fromkeys(_STATES, 0)
    counted = yield from _read_counters(context, queue)
    for states, _ in counted:
        for state, count in states.items():
            totals[state.label] += count
    return totals, _sum_buckets(item for _, late in counted for item in late.items())


def histogram(fields: Iterable[tuple[bytes, bytes]]) -> Lateness:
    """The sum of the stored histograms that these fields and values are of. Raises ValueError for others."""
    return _sum_buckets((_parse_bucket(field), int(count)) for field, count in fields)


def depth(context: NamespaceContext, queue: str, where: Mapping[str, str] | None) -> Plan[int]:
    """How many messages are Pending, of those that carry every pair of ``where``; locked values count too."""
    filters = {} if where is None else validation.filters(where)
    if not filters:
        return (yield from counts(context, queue))["pending"]
    config = yield from context.config(queue)
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
    return total


def forecast(context: NamespaceContext, queue: str, minutes: int) -> Plan[list[ForecastMinute]]:
    """What falls due in each of the coming minutes, this one first."""
    minutes = validation.integer("minutes", minutes, 1, limits.FORECAST_MINUTES_MAX)
    config = yield from context.config(queue)
    if not config.forecast:
        raise InvalidArgument(
            f"queue {queue!r} keeps no forecast: create it with forecast=True, which counts messages per minute"
        )
    requests = [Request(shard, context.call("forecast", shard, queue, [minutes])) for shard in range(context.shards)]
    replies = yield Round(requests)
    first = int.from_bytes(replies[0].value[0]) // 60_000
    totals = [sum(column) for column in zip(*(reply.value[1:] for reply in replies), strict=True)]
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
) -> Plan[list[tuple[dict[State, int], dict[tuple[bytes, int], int]]]]:
    """Of each shard: state -> how many; kind and exponent of a bucket -> how many."""
    yield from context.config(queue)
    requests = [Request(shard, context.call("counts", shard, queue, [])) for shard in range(context.shards)]
    counters = []
    for shard, reply in enumerate((yield Round(requests))):
        _, states, late = reply.value
        try:
            counters.append(
                (
                    {State(int(state)): int(count) for state, count in pairs_from_flat(states)},
                    {_parse_bucket(field): int(count) for field, count in pairs_from_flat(late)},
                )
            )
        except ValueError as error:
            raise TickwheelError(
                f"counters of queue {queue!r} are damaged on shard {shard}: {error}; `tickwheel doctor` names them all"
            ) from error
    return counters


def _parse_bucket(field: bytes) -> tuple[bytes, int]:
    if not BUCKET.fullmatch(field):
        raise ValueError(f"there is no bucket {field!r}")
    kind, _, exponent = field.partition(b":")
    return kind, int(exponent or 0)
