"""What anybody may do with a message by its id: cancel, reschedule, redrive."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from struct import Struct

from tickwheel import limits
from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.model import validation
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.results import Change, changes, chunks_by_shard, raise_first_error
from tickwheel.operations.sessions import RequestSessions, SessionPool
from tickwheel.plan import Plan
from tickwheel.storage.record import BIAS, name
from tickwheel.storage.sharding import shard_of

_CANCEL = Struct(">HIB")
_RESCHEDULE = Struct(">IHI")
_NEW_TIMES = Struct(">BHIQ")
_UNFINISHED = "invisible, pending or running"
_ABSOLUTE, _RELATIVE_DEADLINE, _DUE, _DEADLINE = 1, 2, 4, 8


def locate(context: NamespaceContext, queue: str, id_: object, exclusive_value: object) -> Plan[tuple[int, bytes]]:
    """The shard and the name of a message; InvalidArgument where the value is missing, or given without need."""
    config = yield from context.config(queue)
    raw = validation.message_id(id_)
    if config.exclusive_key is None:
        if exclusive_value is not None:
            raise InvalidArgument(
                f"queue {queue!r} is not exclusive: leave out exclusive_value, {validation.preview(exclusive_value)}"
            )
        return shard_of(queue, raw, context.shards), raw
    if exclusive_value is None:
        raise InvalidArgument(
            f"queue {queue!r} is exclusive by {config.exclusive_key!r}: say exclusive_value, the message's"
            f" {config.exclusive_key!r}, since an id is known only together with it"
        )
    value = validation.text("exclusive_value", exclusive_value, limits.PAIR_VALUE_BYTES)
    return shard_of(queue, value, context.shards), name(raw, value)


def cancel_many(
    context: NamespaceContext, queue: str, ids: Sequence[str], exclusive_value: str | None, release: bool
) -> Plan[list[Change]]:
    """Cancel all; the error of the first that was refused, after the others are done."""
    return raise_first_error((yield from cancel_messages(context, queue, ids, exclusive_value, release)))


def cancel_messages(
    context: NamespaceContext,
    queue: str,
    ids: Sequence[str],
    exclusive_value: str | None,
    release: bool,
    sessions: SessionPool | RequestSessions | None = None,
) -> Plan[list[Change | TickwheelError]]:
    """Cancel all; of each what became of it, or why it was refused."""
    at_once = validation.boolean("release", release)
    check_ids(ids)
    located = []
    for n, id_ in enumerate(ids):
        shard, raw = yield from locate(context, queue, id_, exclusive_value)
        located.append((shard, n, raw))
    done: dict[int, Change | TickwheelError] = {}
    sessions = sessions or context.sessions
    limit = limits.CALL_INDEXED if exclusive_value is None else limits.CALL_EXCLUSIVE
    for part in chunks_by_shard(located, lambda item: item[0], limit):

        def build(
            config: QueueConfig,
            shard: int,
            session: bytes,
            part: dict[int, list[tuple[int, int, bytes]]] = part,
        ) -> tuple[str, list[bytes | int | str]]:
            params = _CANCEL.pack(*divmod(config.retention_ms, 2**32), at_once)
            number = config.number.to_bytes(2)
            items = (number + raw for _, _, raw in part[shard])
            return "cancel", [config.context(context.history), session, params, *items]

        client_session = sessions.acquire()
        try:
            # To cancel again changes nothing, so one whose session is forgotten is done as if it were the first.
            replies = yield from context.call_shards_in_session(queue, list(part), client_session, build, reopens=True)
            for (shard, items), reply in zip(part.items(), replies, strict=True):
                client_session.call_answered(shard, stored=True)
                indexes = [n for _, n, _ in items]
                results = changes(queue, [ids[n] for n in indexes], reply.value, _UNFINISHED)
                done.update(zip(indexes, results, strict=True))
        finally:
            sessions.release(client_session)
    return [done[n] for n in range(len(ids))]


def reschedule(
    context: NamespaceContext,
    queue: str,
    id_: str,
    exclusive_value: str | None,
    delay: timedelta | None,
    due: datetime | None,
    deadline: datetime | timedelta | None,
    sessions: SessionPool | RequestSessions | None = None,
) -> Plan[Change]:
    """Give a message that is not delivered yet a new due time, a new deadline, or both."""
    kind = when = deadline_ms = 0
    check_new_times(delay, due, deadline)
    if delay is not None:
        kind, when = _DUE, validation.duration_ms("delay", delay, 0, limits.DELAY_MS_MAX)
    elif due is not None:
        kind, when = _DUE | _ABSOLUTE, validation.due_ms(due)
    if deadline is not None:
        deadline_ms, relative = validation.deadline_ms(deadline)
        kind |= _DEADLINE | (_RELATIVE_DEADLINE if relative else 0)
    shard, raw = yield from locate(context, queue, id_, exclusive_value)
    limit = _RESCHEDULE.pack(context.clock_guard_ms, *divmod(limits.DELAY_MS_MAX, 2**32))
    times = _NEW_TIMES.pack(kind, *divmod(when, 2**32), deadline_ms + BIAS)
    starts_from = "invisible or pending"
    return (
        yield from _call_by_id(context, "reschedule", queue, shard, id_, [limit], times, raw, starts_from, sessions)
    )


def check_ids(ids: object) -> None:
    """Raises InvalidArgument for what is no list."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Sequence):
        raise InvalidArgument(f"cancel_many takes a list of ids, not {validation.preview(ids)}")


def check_new_times(delay: object, due: object, deadline: object) -> None:
    """Raises InvalidArgument where there is none, or where two contradict each other."""
    if delay is not None and due is not None:
        raise InvalidArgument("give a delay or a due time, not both")
    if delay is None and due is None and deadline is None:
        raise InvalidArgument("give a new delay or due time, a new deadline, or both")


def redrive(
    context: NamespaceContext,
    queue: str,
    id_: str,
    exclusive_value: str | None,
    sessions: SessionPool | RequestSessions | None = None,
) -> Plan[Change]:
    """Errored -> Pending, with attempts from zero."""
    shard, raw = yield from locate(context, queue, id_, exclusive_value)
    return (yield from _call_by_id(context, "redrive", queue, shard, id_, [], b"", raw, "errored", sessions))


def _call_by_id(
    context: NamespaceContext,
    script: str,
    queue: str,
    shard: int,
    id_: str,
    args: list[bytes],
    item_prefix: bytes,
    raw: bytes,
    starts_from: str,
    sessions: SessionPool | RequestSessions | None,
) -> Plan[Change]:
    sessions = sessions or context.sessions
    client_session = sessions.acquire()
    try:

        def build(config: QueueConfig, session: bytes) -> tuple[str, list[bytes | int | str]]:
            item = item_prefix + config.number.to_bytes(2) + raw
            return script, [config.context(context.history), session, *args, item]

        reply = yield from context.call_in_session(queue, shard, client_session, build)
        client_session.call_answered(shard, stored=True)
    finally:
        sessions.release(client_session)
    return raise_first_error(changes(queue, [id_], reply.value, starts_from))[0]
