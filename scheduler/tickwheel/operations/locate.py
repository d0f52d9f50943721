"""Finds the shard and the name of a message from its id, and calls scripts on one message.

The *name* identifies a message within its queue: the id or, in an exclusive queue, the exclusive value and the id.
"""

from collections.abc import Sequence
from enum import StrEnum

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.model.message import LeasedMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.results import Change
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import ScriptCall, call_shards_once, read_shard
from tickwheel.operations.results import changes, message_not_found_error, raise_first_error
from tickwheel.operations.sessions import Sessions
from tickwheel.plan import Plan
from tickwheel.storage.record import name
from tickwheel.storage.sharding import shard_of


class PayloadRead(StrEnum):
    """When `read_message` reads a payload that is not part of its record: a payload above 1 KiB."""

    ALWAYS = "always"
    IF_ENDED = "ended"
    NEVER = "never"


def locate(context: NamespaceContext, queue: str, id_: object, exclusive_value: object) -> Plan[tuple[int, bytes]]:
    """Return the shard and the name of a message.

    Raises InvalidArgument if ``exclusive_value`` is missing for an exclusive queue, or is passed for another queue.
    """
    config = yield from context.config(queue)
    raw = validation.message_id(id_)
    if config.exclusive_key is None:
        if exclusive_value is not None:
            raise InvalidArgument(
                f"queue {queue!r} is not exclusive: omit exclusive_value={validation.preview(exclusive_value)}"
            )
        return shard_of(queue, raw, context.shards), raw
    if exclusive_value is None:
        raise InvalidArgument(
            f"queue {queue!r} is exclusive by {config.exclusive_key!r}: pass exclusive_value, the message's"
            f" {config.exclusive_key!r}, because messages of different values may have the same id"
        )
    value = validation.text("exclusive_value", exclusive_value, limits.PAIR_VALUE_BYTES)
    return shard_of(queue, value, context.shards), name(raw, value)


def read_message(
    context: NamespaceContext, queue: str, id_: str, exclusive_value: str | None, payload: PayloadRead
) -> Plan[tuple[bytes, bytes, bytes]]:
    """Return the name and the record of a message, and its payload if the record does not contain the payload.

    The payload is empty unless ``payload`` demands it. Raises MessageNotFound.
    """
    shard, raw = yield from locate(context, queue, id_, exclusive_value)
    reply = yield from read_shard(context, queue, shard, "get", [raw, payload])
    _, stored, body = reply.value
    if not stored:
        raise message_not_found_error(queue, id_)
    return raw, stored, body


def call_by_id(
    context: NamespaceContext,
    script: str,
    queue: str,
    id_: str,
    exclusive_value: str | None,
    sessions: Sessions | None,
    args: Sequence[bytes] = (),
    item_prefix: bytes = b"",
) -> Plan[Change]:
    """Call a script on one message, and return the change.

    Raises MessageNotFound, or InvalidTransition if the script does not apply to the message's state.
    """
    shard, raw = yield from locate(context, queue, id_, exclusive_value)

    def build(config: QueueConfig, shard: int, session: bytes) -> ScriptCall:
        item = item_prefix + config.number.to_bytes(2) + raw
        return script, [config.context(context.history), session, *args, item]

    [reply] = yield from call_shards_once(context, queue, [shard], build, sessions)
    return raise_first_error(changes(queue, [id_], reply.value, script, sessions))[0]


def shard_of_message(context: NamespaceContext, message: LeasedMessage) -> int:
    """Return the shard of a leased message, whose exclusive value is known."""
    if context.shards == 1:
        return 0
    key = message.id if message.exclusive_value is None else message.exclusive_value
    return shard_of(message.queue, key.encode(), context.shards)
