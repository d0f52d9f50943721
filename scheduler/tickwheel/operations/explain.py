"""Explain: why a message is not running, and when it will."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from struct import Struct

from tickwheel.errors import MessageNotFound
from tickwheel.model import validation as arguments
from tickwheel.operations.cancel import locate
from tickwheel.operations.context import Core
from tickwheel.operations.inspect import decoded
from tickwheel.plan import Plan, Request, Round
from tickwheel.storage import record
from tickwheel.storage.record import State

_PLACE = Struct(">HIHIHI")
_NONE = 2**48 - 1
_IS_ONE = "(is one running?)"


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
    ran: of its own, which holds its exclusive value), end of retention. Past, where no event process has seen to it."""
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
    n1, n2, a1, a2, b1, b2 = _PLACE.unpack(place)
    now_ms = n1 << 32 | n2
    ahead, behind = (None if n == _NONE else n for n in (a1 << 32 | a2, b1 << 32 | b2))
    found = decoded(queue, raw, stored)
    until = arguments.from_ms(found.until_ms)
    state = found.state.label
    if found.state is State.INVISIBLE:
        return Explanation(id_, state, "invisible", _not_pending_yet(found, now_ms), until)
    if found.state is State.RUNNING:
        reason = f"{_lease(found, now_ms)} (attempt {found.attempts}){_not_taken_back(found, now_ms)}"
        return Explanation(id_, state, "running", reason, until, worker=found.worker or None)
    if found.state is State.ERRORED:
        used = f"its {found.attempts} attempt{'s are' if found.attempts != 1 else ' is'} used up"
        reason = used + (f": {found.error}" if found.error else "")
        kept = _kept(found, now_ms)
        return Explanation(id_, state, "errored", f"{reason}; redrive it to try again; {kept}", until)
    if found.held:
        reason = (
            "it was cancelled while it ran: its exclusive value is held until"
            f" {_worker(found)}, which gets LeaseLost, {_calls_or_lease_ends(found, now_ms)}; then the next of its"
            f" value may run, and this one is kept for {timedelta(milliseconds=config.retention_ms)}"
        )
        return Explanation(id_, state, "cancelled", reason, until, worker=found.worker or None)
    if found.state is not State.PENDING:
        return Explanation(id_, state, state, f"it was {state}; {_kept(found, now_ms)}", until)
    if ahead is not None and core.shards > 1:
        ahead += yield from _ahead_elsewhere(core, queue, shard, found.deadline_ms)
    if config.dequeue_blocked:
        return Explanation(id_, state, "blocked", "the queue is blocked for dequeue", ahead=ahead)
    if behind is None:
        if ahead:
            reason = f"{ahead} more urgent message{'s are' if ahead > 1 else ' is'} ahead of it"
            return Explanation(id_, state, "behind_others", reason, ahead=ahead)
        return Explanation(id_, state, "next", "it is next: no worker has asked for it yet", ahead=0)
    holder = decoded(queue, holder_name, holder_record) if holder_record else None
    others = f"{behind} other{'s' if behind != 1 else ''} of its value go{'es' if behind == 1 else ''} first"
    if holder is None or not (holder.state is State.RUNNING or holder.held):
        return Explanation(id_, state, "behind_value", others, ahead_in_value=behind)
    frees = arguments.from_ms(holder.until_ms)
    holder_id = record.split_name(holder_name, True)[0]
    if holder.held:
        reason = (
            f"message {holder_id!r} of its exclusive value was cancelled while it ran, and holds the value until"
            f" {_worker(holder)} {_calls_or_lease_ends(holder, now_ms)}"
        )
    elif _is_over(holder, now_ms):
        lease = _lease(holder, now_ms) + _not_taken_back(holder, now_ms)
        reason = f"message {holder_id!r} holds its exclusive value: {lease}"
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


def _is_over(found: record.Record, now_ms: int) -> bool:
    """What it waits for has come: from here on it is the event process that it waits for."""
    return found.until_ms <= now_ms


def _not_pending_yet(found: record.Record, now_ms: int) -> str:
    # A back-off leaves the due time as it is, which a new due time does not.
    backs_off = found.until_ms != found.due_ms
    when = _moment(found.until_ms)
    if _is_over(found, now_ms):
        since = f"its back-off ended at {when}" if backs_off else f"it has been due since {when}"
        return f"{since}, and no event process has promoted it yet {_IS_ONE}"
    return f"{'its next attempt waits for its back-off' if backs_off else 'it is not due'} until {when}"


def _lease(found: record.Record, now_ms: int) -> str:
    when = _moment(found.until_ms)
    if _is_over(found, now_ms):
        return f"the lease of {_worker(found)} ended at {when}"
    return f"{_worker(found)} holds its lease until {when}"


def _not_taken_back(found: record.Record, now_ms: int) -> str:
    return f", and no event process has taken it back yet {_IS_ONE}" if _is_over(found, now_ms) else ""


def _calls_or_lease_ends(found: record.Record, now_ms: int) -> str:
    """What frees the value that a cancelled message holds."""
    when = _moment(found.until_ms)
    if _is_over(found, now_ms):
        return f"calls again or an event process {_IS_ONE} sees that its lease ended at {when}"
    return f"calls again or its lease ends at {when}"


def _kept(found: record.Record, now_ms: int) -> str:
    when = _moment(found.until_ms)
    if _is_over(found, now_ms):
        return f"its retention ended at {when}, and no event process has removed it yet {_IS_ONE}"
    return f"kept until {when}"


def _worker(found: record.Record) -> str:
    return f"worker {found.worker!r}" if found.worker else "a worker"


def _moment(ms: int) -> str:
    return f"{arguments.from_ms(ms):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} UTC"
