"""Reads which shards have answered a call with a request id, for calls that concern several shards.

A shard itself returns its first answer to a repeated call, and rejects another call with the same number. It does not
know what the other shards have answered.
"""

from collections.abc import Collection
from struct import Struct

from tickwheel.errors import SessionExpired
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.sessions import NamedCall
from tickwheel.plan import Plan, Request, Round
from tickwheel.storage.keys import session_key

_SEQUENCE = Struct(">Q")


def refuse_other_call(context: NamespaceContext, queue: str, shards: Collection[int], named: NamedCall) -> Plan[None]:
    """Raise InvalidArgument if one of several shards has answered another call with this request id.

    So a call of several shards that one of them would reject changes nothing on the others.
    """
    if len(shards) > 1:
        for reply in (yield Round(_digest_requests(context, shards, named))):
            named.refuse_other_call(queue, reply.value)


def answered_shards(context: NamespaceContext, queue: str, named: NamedCall) -> Plan[list[int]]:
    """Return the shards that have answered this call.

    Raises SessionExpired if any shard answered a call with the same slot and a greater number, and InvalidArgument if
    any shard answered another call with the same number.
    """
    shards = range(context.shards)
    keys = [session_key(context.namespace, shard, named.session_name) for shard in shards]
    sessions = [Request(shard, command=("GET", key)) for shard, key in enumerate(keys)]
    replies = yield Round([*sessions, *_digest_requests(context, shards, named)])
    stored = zip(shards, replies[: len(shards)], strict=True)
    last = {shard: _SEQUENCE.unpack_from(reply.value)[0] for shard, reply in stored if reply.value is not None}
    if any(sequence > named.sequence for sequence in last.values()):
        raise SessionExpired(
            f"request {named.slot}:{named.sequence} is rejected: a newer call of this slot was answered"
        )
    for reply in replies[len(shards) :]:
        named.refuse_other_call(queue, reply.value)
    return [shard for shard, sequence in last.items() if sequence == named.sequence]


def _digest_requests(context: NamespaceContext, shards: Collection[int], named: NamedCall) -> list[Request]:
    return [Request(shard, command=("GET", named.digest_key(context.namespace, shard))) for shard in shards]
