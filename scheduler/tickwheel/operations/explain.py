"""Explain: why a message is not running, and when it will."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from struct import Struct

from tickwheel import arguments, record
from tickwheel.core import Core
from tickwheel.errors import MessageNotFound
from tickwheel.operations.change import locate
from tickwheel.plan import Plan, Request, Round
from tickwheel.record import State

_PLACE = Struct(">HIHIHI")
_NONE = 2**48 - 1


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a message stands. ``reason`` says it in a sentence; the fields are for programs.

    Reasons: ``invisible``, ``behind_value``, ``behind_others``, ``next``, ``blocked``, ``running``, ``completed``,
    ``cancelled``, ``errored``.
    """

    id: str
    state: str
    code: str
    reason: str
    until: datetime | None = None
    """When that changes by itself: due, end of the lease that holds it up (of a message that was cancelled while it
    ran: of its own, which holds its exclusive value), end of retention."""
    ahead: int | None = None
    """Deliverable messages that are more urgent; on other shards those with an earlier deadline."""
    ahead_in_value: int | None = None
    """Messages of its exclusive value that go first, apart from the one that is running."""
    holder: str | None = None
    """The running message of its exclusive value."""
    worker: str | None = None
    """Who has the lease, its own or the holder's, as named at dequeue."""


def explain(core: Core, queue: str, id_: str, exclusive_value: str | None) -> Plan[Explanation]:
    """Why a message is not running, and when it will."""
    shard, raw = yield from locate(core, queue, id_, exclusive_value)
    reply = yield from core.read(queue, shard, "explain", [raw])
    place, stored, holder_name, holder_record = reply.value
    if not stored:
        raise MessageNotFound(
            f"queue {queue!r} has no message {id_!r}: it was never enqueued, or its retention is over"
        )
    config = yield from core.config(queue)
    _, _, a1, a2, b1, b2 = _PLACE.unpack(place)
    ahead, behind = (None if n == _NONE else n for n in (a1 << 32 | a2, b1 << 32 | b2))
    found = record.decode(stored)
    until, when = arguments.from_ms(found.until_ms), _moment(found.until_ms)
    state = found.state.label
    if found.state is State.INVISIBLE:
        why = "its next attempt waits for its back-off" if found.attempts else "it is not due"
        return Explanation(id_, state, "invisible", f"{why} until {when}", until)
    if found.state is State.RUNNING:
        reason = f"{_worker(found)} holds its lease until {when} (attempt {found.attempts})"
        return Explanation(id_, state, "running", reason, until, worker=found.worker or None)
    if found.state is State.ERRORED:
        reason = f"its {found.attempts} attempts are used up" + (f": {found.error}" if found.error else "")
        return Explanation(id_, state, "errored", f"{reason}; redrive it to try again; kept until {when}", until)
    if found.held:
        kept = timedelta(milliseconds=config.retention_ms)
        reason = (
            f"it was cancelled while it ran: its exclusive value is held until {_worker(found)}, which gets LeaseLost,"
            f" calls again, or its lease ends at {when}; then the next of its value may run, and this one is kept for"
            f" {kept}"
        )
        return Explanation(id_, state, "cancelled", reason, until, worker=found.worker or None)
    if found.state is not State.PENDING:
        return Explanation(id_, state, state, f"it was {state}; kept until {when}", until)
    if ahead is not None and core.shards > 1:
        ahead += yield from _ahead_elsewhere(core, queue, shard, found.deadline_ms)
    if config.dequeue_blocked:
        return Explanation(id_, state, "blocked", "the queue is blocked for dequeue", ahead=ahead)
    if behind is None:
        if ahead:
            reason = f"{ahead} more urgent message{'s are' if ahead > 1 else ' is'} ahead of it"
            return Explanation(id_, state, "behind_others", reason, ahead=ahead)
        return Explanation(id_, state, "next", "it is next: no worker has asked for it yet", ahead=0)
    holder = record.decode(holder_record) if holder_record else None
    others = f"{behind} other{'s' if behind != 1 else ''} of its value go{'es' if behind == 1 else ''} first"
    if holder is None or not (holder.state is State.RUNNING or holder.held):
        return Explanation(id_, state, "behind_value", others, ahead_in_value=behind)
    frees = arguments.from_ms(holder.until_ms)
    holder_id = record.split_name(holder_name, True)[0]
    if holder.held:
        reason = (
            f"message {holder_id!r} of its exclusive value was cancelled while it ran, and holds the value until"
            f" {_worker(holder)} calls again or its lease ends at {_moment(holder.until_ms)}"
        )
    else:
        reason = (
            f"message {holder_id!r} of its exclusive value is held by {_worker(holder)} until"
            f" {_moment(holder.until_ms)}"
        )
    reason += f", and {others}" if behind else ""
    return Explanation(
        id_, state, "behind_value", reason, frees, ahead_in_value=behind, holder=holder_id, worker=holder.worker or None
    )


def _ahead_elsewhere(core: Core, queue: str, here: int, deadline_ms: int) -> Plan[int]:
    replies = yield Round(
        [
            Request(shard, command=("ZCOUNT", core.keys(shard, queue)["ready"], "-inf", f"({deadline_ms}"))
            for shard in range(core.shards)
            if shard != here
        ]
    )
    return sum(reply.value for reply in replies)


def _worker(found: record.Record) -> str:
    return f"worker {found.worker!r}" if found.worker else "a worker"


def _moment(ms: int) -> str:
    return f"{arguments.from_ms(ms):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} UTC"
