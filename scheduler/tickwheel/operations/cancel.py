"""Cancel messages by their ids, in any state that is not final."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from tickwheel import limits
from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.model import validation
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.results import Change
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import ScriptCall, call_shards_once
from tickwheel.operations.locate import locate
from tickwheel.operations.results import changes, chunks_by_shard, raise_first_error
from tickwheel.operations.sessions import Sessions
from tickwheel.plan import Pause, Plan

_CANCEL = Struct(">HIB")
# After each of these numbers of ids or shards, an event loop serves other calls.
_IDS_AT_ONCE: Final = 250
_SHARDS_AT_ONCE: Final = 32


def cancel_many(
    context: NamespaceContext, queue: str, ids: Sequence[str], exclusive_value: str | None, release: bool
) -> Plan[list[Change]]:
    """Cancel the messages with these ids, and return their changes.

    If some messages cannot be cancelled, raises the first error after the others are cancelled.
    """
    return raise_first_error((yield from cancel_messages(context, queue, ids, exclusive_value, release)))


def cancel_messages(
    context: NamespaceContext,
    queue: str,
    ids: Sequence[str],
    exclusive_value: str | None,
    release: bool,
    sessions: Sessions | None = None,
) -> Plan[list[Change | TickwheelError]]:
    """Cancel the messages with these ids. Return the change of each message, or its error.

    ``release`` frees the exclusive value of a running message immediately.
    """
    at_once = validation.boolean("release", release)
    check_ids(ids)
    located = []
    for n, id_ in enumerate(ids):
        if n % _IDS_AT_ONCE == _IDS_AT_ONCE - 1:
            yield Pause(0)
        shard, raw = yield from locate(context, queue, id_, exclusive_value)
        located.append((shard, n, raw))
    done: dict[int, Change | TickwheelError] = {}
    limit = limits.CALL_INDEXED if exclusive_value is None else limits.CALL_EXCLUSIVE
    for part in chunks_by_shard(located, context.shards, lambda item: item[0], limit):

        def build(
            config: QueueConfig,
            shard: int,
            session: bytes,
            part: dict[int, list[tuple[int, int, bytes]]] = part,
        ) -> ScriptCall:
            params = _CANCEL.pack(*divmod(config.retention_ms, 2**32), at_once)
            number = config.number.to_bytes(2)
            items = (number + raw for _, _, raw in part[shard])
            return "cancel", [config.context(context.history), session, params, *items]

        # Cancelling twice is harmless, so a call whose session has expired is simply executed again.
        replies = yield from call_shards_once(context, queue, list(part), build, sessions, reopens=True)
        for place, (items, reply) in enumerate(zip(part.values(), replies, strict=True)):
            if place % _SHARDS_AT_ONCE == _SHARDS_AT_ONCE - 1:
                yield Pause(0)
            indexes = [n for _, n, _ in items]
            results = changes(queue, [ids[n] for n in indexes], reply.value, "cancel", sessions)
            done.update(zip(indexes, results, strict=True))
    return [done[n] for n in range(len(ids))]


def check_ids(ids: object) -> None:
    """Raise InvalidArgument if ``ids`` is not a list of ids."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Sequence):
        raise InvalidArgument(f"cancel_many takes a list of ids, not {validation.preview(ids)}")
