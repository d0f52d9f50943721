"""The reason why a program does not drive a namespace as a candidate of last resort.

`tickwheel worker` and `tickwheel serve` drive a namespace that nobody else drives. They drive only a namespace that
they can serve whole: with its history, its sinks, and all its shards.
"""

from tickwheel.errors import Forbidden, NamespaceGone
from tickwheel.operations.context import RELAYED, NamespaceContext
from tickwheel.operations.driving.leader_permissions import find_denied
from tickwheel.operations.namespace import read_namespace
from tickwheel.operations.removal.queue_numbers import read_rows
from tickwheel.plan import Plan, Request, Round
from tickwheel.storage.keys import shard_key


def find_obstacle(context: NamespaceContext, election: str, *, has_kafka: bool) -> Plan[str]:
    """Return why a candidate of last resort does not drive the namespace; an empty text if it may drive.

    Fills the context if the namespace exists. ``election`` is the kind of election in which the candidate takes part.
    ``has_kafka``: the candidate relays events to Kafka, and serves sinks.
    """
    try:
        if not (yield from read_namespace(context)):
            return "the namespace does not exist"
        if context.history >= RELAYED and not has_kafka:
            return "its events are relayed to Kafka, and this program has no option --kafka"
        if kind := (yield from _find_other_election(context, election)):
            return kind
        if denied := (yield from find_denied(context)):
            return f"the server's user may not do all that a leader does, such as {denied[0]}"
        if not has_kafka and (queue := (yield from _find_sink(context))):
            return f"queue {queue!r} delivers to a sink, and this program has no option --kafka"
    except NamespaceGone:
        return "the namespace is being deleted"
    except Forbidden as error:
        return f"the server's user may not do all that a leader does: {error}"
    return ""


def _find_other_election(context: NamespaceContext, own: str) -> Plan[str]:
    """Return an obstacle if a shard is driven, or was driven last, by event processes of another kind of election."""
    shards = range(context.shards)
    keys = [shard_key(context.namespace, shard, "clock") for shard in shards]
    replies = yield Round([Request(shard, command=("HMGET", keys[shard], "election", "embedded")) for shard in shards])
    for shard, (stored, embedded) in zip(shards, (reply.value for reply in replies), strict=True):
        if embedded is not None:
            return f"shard {shard} is on the embedded server of a data directory"
        kind = (stored or b"").decode(errors="replace")
        if kind not in ("", own):
            remedy = " (`tickwheel events` takes its shards over)" if kind == "lockfile" else ""
            return f"the event processes of shard {shard} have an election of the kind {kind!r}{remedy}"
    return ""


def _find_sink(context: NamespaceContext) -> Plan[str]:
    """Return the name of a queue with a sink, or an empty text."""
    rows = yield from read_rows(context)
    return min((name for name, config in rows.configs.items() if config.sink is not None), default="")
