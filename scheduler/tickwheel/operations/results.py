"""Results that scripts return for each message, and the errors that some of them represent."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from struct import Struct
from typing import TypeVar

from tickwheel import limits
from tickwheel.errors import (
    InvalidArgument,
    InvalidTransition,
    LeaseLost,
    MessageNotFound,
    QueueNotFound,
    TickwheelError,
)
from tickwheel.model import validation
from tickwheel.model.durations import format_duration
from tickwheel.model.message import LeasedMessage, label
from tickwheel.model.results import Change
from tickwheel.model.state_machine import describe_sources
from tickwheel.operations.sessions import RequestSessions, Sessions
from tickwheel.plan import Plan
from tickwheel.storage.record import State
from tickwheel.storage.script_errors import OTHER_CALL_ADVICE

T = TypeVar("T")
L = TypeVar("L", bound=LeasedMessage)
RESULT = Struct(">BBIHI")
_MAX_STATE = max(State)
DONE, ALREADY, NOT_FOUND, INVALID, LOST, CONFLICT = range(6)


def unpack_results(answer: object, count: int, sessions: Sessions | None = None) -> Iterator[tuple[int, int, int, int]]:
    """Yield (code, state, version, time in ms) for each of ``count`` messages.

    ``sessions`` are those of the call. Raises ValueError for an answer that no script returns. If the call has a
    request id, raises InvalidArgument instead, because the answer may be the stored answer of another call.
    """
    if not isinstance(answer, bytes) or len(answer) != count * RESULT.size:
        raise _wrong_answer(answer, count, sessions)
    for code, state, version, high, low in RESULT.iter_unpack(answer):
        if code > CONFLICT or state > _MAX_STATE:
            raise _wrong_answer(answer, count, sessions)
        yield code, state, version, high << 32 | low


def _wrong_answer(answer: object, count: int, sessions: Sessions | None) -> Exception:
    text = f"not the results of {count} messages: {answer!r:.80}"
    if isinstance(sessions, RequestSessions):
        return InvalidArgument(f"{text}: the server's answer is broken, or {OTHER_CALL_ADVICE}")
    return ValueError(text)


def chunks_by_shard(
    items: Sequence[T], shards: int, shard_of: Callable[[T], int], limit: int
) -> Iterator[dict[int, list[T]]]:
    """Yield the items by shard, in rounds of at most ``limit`` items for each of the ``shards``."""
    by_shard: defaultdict[int, list[T]] = defaultdict(list)
    if shards == 1:
        by_shard[0] = list(items)
    else:
        for item in items:
            by_shard[shard_of(item)].append(item)
    longest = max(map(len, by_shard.values()), default=0)
    for first in range(0, longest, limit):
        yield {shard: part[first : first + limit] for shard, part in by_shard.items() if len(part) > first}


def changes(
    queue: str, ids: Sequence[str], answer: object, script: str, sessions: Sessions | None
) -> list[Change | TickwheelError]:
    """Return the change of every message, or its error. ``sessions`` are those of the call."""
    results = unpack_results(answer, len(ids), sessions)
    return [_change(queue, id_, result, script) for id_, result in zip(ids, results, strict=True)]


def _change(queue: str, id_: str, result: tuple[int, int, int, int], script: str) -> Change | TickwheelError:
    code, state, version, at = result
    if code == NOT_FOUND:
        return message_not_found_error(queue, id_)
    if code == INVALID:
        return InvalidTransition(
            f"message {id_!r} of queue {queue!r} is {label(state)}; this call needs a message that is"
            f" {describe_sources(script)}",
            label(state),
        )
    return Change(id_, label(state), version, validation.from_ms(at), code == DONE)


def message_not_found_error(queue: str, id_: str) -> MessageNotFound:
    """Return the error for an id that no message of the queue has."""
    return MessageNotFound(
        f"queue {queue!r} has no message {id_!r}: it was never enqueued, or its retention is over, which the setting"
        f" `retention` of the queue prolongs (by default, {format_duration(limits.RETENTION_MS)} after the end of the"
        " message, also by the clock of a test)"
    )


def raise_first_error(results: Sequence[Change | TickwheelError]) -> list[Change]:
    """Return the changes. Raises the first error among the results."""
    changed = []
    for result in results:
        if isinstance(result, TickwheelError):
            raise result
        changed.append(result)
    return changed


def queue_identity(message: LeasedMessage) -> tuple[str, int]:
    """Return the name and the number of the message's queue. A recreated queue has another number."""
    return message.queue, message._queue_number


def split_by_queue(items: Sequence[T], messages: Sequence[LeasedMessage]) -> list[Sequence[T]]:
    """Return the items in one list for each run of consecutive messages of one queue. Each message has one item."""
    if len({(message.queue, message._field[:2]) for message in messages}) == 1:
        # Nearly all calls have messages of one queue.
        return [items]
    runs = groupby(zip(items, messages, strict=True), lambda pair: queue_identity(pair[1]))
    return [[item for item, _ in run] for _, run in runs]


def call_each_queue(calls: Iterable[tuple[Sequence[L], Plan[Sequence[L]]]]) -> Plan[None]:
    """Run a plan for the messages of each queue. A plan returns the messages whose lease is lost.

    If a queue no longer exists, its plan raises QueueNotFound, and all of its leases are lost.
    Raises LeaseLost at the end if leases are lost, or QueueNotFound if none of the queues exists.
    """
    lost: list[L] = []
    missing: QueueNotFound | None = None
    exists = False
    for messages, plan in calls:
        try:
            lost += yield from plan
            exists = True
        except QueueNotFound as error:
            lost += messages
            missing = missing or error
    if missing is not None and not exists:
        raise missing
    raise_lease_lost(lost)


def raise_lease_lost(lost: Sequence[LeasedMessage]) -> None:
    """Raise LeaseLost if ``lost`` is not empty."""
    if lost:
        first = lost[0]
        raise LeaseLost(
            f"the lease on message {first.id!r} of queue {first.queue!r} (attempt {first.attempt}) is lost: it ended,"
            " or the message was finished or cancelled, or its queue was deleted"
            + (f"; the leases on {len(lost) - 1} more messages are lost, too" if len(lost) > 1 else ""),
            lost,
        )
