"""Explain why a message is not running, and when it will run."""

from dataclasses import dataclass
from struct import Struct

from tickwheel.model import validation
from tickwheel.model.results import Explanation
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import read_shard
from tickwheel.operations.inspect import decode_record, raise_if_damaged
from tickwheel.operations.locate import locate
from tickwheel.operations.results import message_not_found_error
from tickwheel.plan import Plan, Request, Round
from tickwheel.storage.record import Record, State, split_name

_POSITION = Struct(">HIHIHI")
_NONE = 2**48 - 1


@dataclass(frozen=True, slots=True)
class _Moment:
    """The time of the shard's server, and whether the clock guard of the shard's last event process held."""

    ms: int
    is_held: bool

    @property
    def hint(self) -> str:
        """Why an event process may not have fired a timer that is due."""
        if self.is_held:
            return "(the clock guard of the last one held, because the server's clock stepped: see `tickwheel doctor`)"
        return "(is one running?)"


def explain(context: NamespaceContext, queue: str, id_: str, exclusive_value: str | None) -> Plan[Explanation]:
    """Return why a message is not running, and when it will run. Raises MessageNotFound."""
    shard, raw = yield from locate(context, queue, id_, exclusive_value)
    reply = yield from read_shard(context, queue, shard, "explain", [raw])
    position, stored, holder_name, holder_record, held = reply.value
    if not stored:
        raise message_not_found_error(queue, id_)
    config = yield from context.config(queue)
    n1, n2, a1, a2, b1, b2 = _POSITION.unpack(position)
    now = _Moment(n1 << 32 | n2, bool(held))
    ahead, behind = (None if n == _NONE else n for n in (a1 << 32 | a2, b1 << 32 | b2))
    message = decode_record(queue, raw, stored)
    until = validation.from_ms(message.until_ms)
    state = message.state.label
    if message.state is State.INVISIBLE:
        return Explanation(id_, state, "invisible", _describe_invisible(message, now), until)
    if message.state is State.RUNNING:
        reason = f"{_describe_lease(message, now)} (attempt {message.attempts}){_describe_expired_lease(message, now)}"
        return Explanation(id_, state, "running", reason, until, worker=message.worker or None)
    if message.state is State.ERRORED:
        failed = f"it failed after {message.attempts} attempt{'s' if message.attempts != 1 else ''}"
        reason = failed + (f": {message.error}" if message.error else "")
        kept = _describe_retention(message, now)
        return Explanation(id_, state, "errored", f"{reason}; redrive it to try again; {kept}", until)
    if message.holds_exclusive_value:
        reason = (
            "it was cancelled while it ran: its exclusive value is held until"
            f" {_describe_worker(message)} {_describe_value_release(message, now)};"
            " then the next message of the value may run, and this message is kept for"
            f" {validation.describe_ms(config.retention_ms)}"
        )
        return Explanation(id_, state, "cancelled", reason, until, worker=message.worker or None)
    if message.state is not State.PENDING:
        return Explanation(id_, state, state, f"it was {state}; {_describe_retention(message, now)}", until)
    if ahead is not None and context.shards > 1:
        ahead += yield from _count_ahead_on_other_shards(context, queue, shard, message.deadline_ms)
    if config.dequeue_blocked:
        return Explanation(id_, state, "blocked", "the queue is blocked for dequeue", ahead=ahead)
    if behind is None:
        if ahead:
            reason = f"{ahead} more urgent message{'s are' if ahead > 1 else ' is'} ahead of it"
            return Explanation(id_, state, "behind_others", reason, ahead=ahead)
        return Explanation(id_, state, "next", "it is next: no worker has dequeued it yet", ahead=0)
    holder = decode_record(queue, holder_name, holder_record) if holder_record else None
    noun = "message of its exclusive value comes" if behind == 1 else "messages of its exclusive value come"
    others = f"{behind} other {noun} first"
    if holder is None or not (holder.state is State.RUNNING or holder.holds_exclusive_value):
        return Explanation(id_, state, "behind_value", others, ahead_in_value=behind)
    frees = validation.from_ms(holder.until_ms)
    with raise_if_damaged(queue, holder_name):
        holder_id = split_name(holder_name, True)[0]
    if holder.holds_exclusive_value:
        reason = (
            f"message {holder_id!r} of its exclusive value was cancelled while it ran, and holds the value until"
            f" {_describe_worker(holder)} {_describe_value_release(holder, now)}"
        )
    elif _is_overdue(holder, now):
        lease = _describe_lease(holder, now) + _describe_expired_lease(holder, now)
        reason = f"message {holder_id!r} holds its exclusive value: {lease}"
    else:
        reason = (
            f"message {holder_id!r} of its exclusive value is held by {_describe_worker(holder)} until"
            f" {_format_time(holder.until_ms)}"
        )
    reason += f", and {others}" if behind else ""
    return Explanation(
        id_, state, "behind_value", reason, frees, ahead_in_value=behind, holder=holder_id, worker=holder.worker or None
    )


def _count_ahead_on_other_shards(context: NamespaceContext, queue: str, here: int, deadline_ms: int) -> Plan[int]:
    replies = yield Round(
        [
            Request(shard, command=("ZCOUNT", context.keys(shard, queue)["ready"], "-inf", f"({deadline_ms}"))
            for shard in range(context.shards)
            if shard != here
        ]
    )
    return sum(reply.value for reply in replies)


def _is_overdue(message: Record, now: _Moment) -> bool:
    """Return whether the message's timer is due. If so, the message waits for an event process."""
    return message.until_ms <= now.ms


def _describe_invisible(message: Record, now: _Moment) -> str:
    # A back-off changes only `until_ms`; a reschedule changes the due time, too.
    backs_off = message.until_ms != message.due_ms
    when = _format_time(message.until_ms)
    if _is_overdue(message, now):
        since = f"its back-off ended at {when}" if backs_off else f"it has been due since {when}"
        return f"{since}, and no event process has promoted it yet {now.hint}"
    return f"{'its next attempt waits for its back-off' if backs_off else 'it is not due'} until {when}"


def _describe_lease(message: Record, now: _Moment) -> str:
    when = _format_time(message.until_ms)
    if _is_overdue(message, now):
        return f"the lease of {_describe_worker(message)} ended at {when}"
    return f"{_describe_worker(message)} holds its lease until {when}"


def _describe_expired_lease(message: Record, now: _Moment) -> str:
    return f", and no event process has processed its end yet {now.hint}" if _is_overdue(message, now) else ""


def _describe_value_release(message: Record, now: _Moment) -> str:
    """Return when the exclusive value of a cancelled message becomes free: the words after "until worker 'w' …"."""
    when = _format_time(message.until_ms)
    if _is_overdue(message, now):
        event_process = f"an event process {now.hint}"
        return f"calls again (and gets LeaseLost), or {event_process} processes the lease, which ended at {when}"
    return f"calls again (and gets LeaseLost), or the lease ends at {when}"


def _describe_retention(message: Record, now: _Moment) -> str:
    when = _format_time(message.until_ms)
    if _is_overdue(message, now):
        return f"its retention ended at {when}, and no event process has removed it yet {now.hint}"
    return f"kept until {when}"


def _describe_worker(message: Record) -> str:
    return f"worker {message.worker!r}" if message.worker else "a worker"


def _format_time(ms: int) -> str:
    return f"{validation.from_ms(ms):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} UTC"
