"""The reason why a program does not drive a namespace as a candidate of last resort.

`tickwheel worker` and `tickwheel serve` drive a namespace that nobody else drives. They drive only a namespace that
they can serve whole: with its history, its sinks, and all its shards.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tickwheel.errors import DataLoss, Forbidden, InvalidArgument, NamespaceGone, TickwheelError, Unavailable
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.served_topics import ServedTopics
from tickwheel.model.sink_url import split_sink_url, validate_sink_url
from tickwheel.operations.context import RELAYED, NamespaceContext
from tickwheel.operations.driving.leader_permissions import denied_commands, permission_requests
from tickwheel.operations.namespace import read_namespace
from tickwheel.operations.removal.queue_numbers import read_rows
from tickwheel.plan import Plan, Reply, Request, Round, send_request
from tickwheel.storage.keys import queues_key, shard_key


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason why a candidate of last resort does not drive. If it is the sink of a queue, ``queue`` is set."""

    text: str
    queue: str | None = None


# This obstacle often ends soon: the next program that uses the namespace creates it.
MISSING: Final = Obstacle("the namespace does not exist")
# A client with `drive=True` cannot have brokers.
_NO_KAFKA: Final = (
    "this program has no Kafka brokers (the option --kafka of `tickwheel events`, `tickwheel worker` and `tickwheel"
    " serve`)"
)
# The fields of a shard that show its kind of election. The second one is the kind before a reset of the epoch.
_FIELDS: Final = ("election", "former_election", "embedded")


def find_obstacle(
    context: NamespaceContext, election: str, *, topics: ServedTopics | None, replicas: int = 0
) -> Plan[Obstacle | None]:
    """Return why a candidate of last resort does not drive the namespace; None if it may drive.

    Raises Unavailable. Fills the context if the namespace exists. ``election`` is the kind of election in which the
    candidate takes part. If ``topics`` is not None, the candidate relays events to Kafka, and serves the sinks with
    these topics. It relays an event after ``replicas`` replicas have received the event. On one server, the plan costs
    three calls; a round is one call.

    A shard that nobody has claimed is no obstacle here: the candidate itself waits (`election.unclaimed_shards`). The
    row of a queue that cannot be read is none either, nor is a shard whose claim cannot be read. With Kafka, nor is a
    sink whose URL is invalid. The process logs them, and no other process could do more for the queue or the shard.
    """
    try:
        if not (yield from read_namespace(context)):
            return MISSING
        if context.history >= RELAYED and topics is None:
            return Obstacle(f"its events are relayed to Kafka, and {_NO_KAFKA}")
        shards = _election_requests(context)
        permissions = permission_requests(context, replicas if context.history >= RELAYED else 0)
        try:
            replies = yield Round([*shards, *permissions])
        except DataLoss:
            replies = [*(yield from _read_one_by_one(shards)), *(yield Round(permissions))]
        if kind := _other_election(replies[: len(shards)], election):
            return Obstacle(kind)
        if denied := denied_commands(replies[len(shards) :]):
            return Obstacle(f"the server's user may not do all that a leader does, such as {denied[0]}")
        return _first_sink((yield from read_rows(context)).configs, topics)
    except NamespaceGone:
        return Obstacle("the namespace is being deleted")
    except Forbidden as error:
        return Obstacle(f"the server's user may not do all that a leader does: {error}")
    except Unavailable:
        raise
    except TickwheelError as error:
        # The namespace has another format, or its data are damaged. Another attempt would fail, too.
        return Obstacle(str(error))


def find_sink(
    context: NamespaceContext, queues: Sequence[str], *, topics: ServedTopics | None
) -> Plan[Obstacle | None]:
    """Return the obstacle if one of these queues has a sink that the candidate does not serve; None if none has one.

    ``topics`` are those of `find_obstacle`.
    """
    reply = yield from send_request(Request(0, command=("HMGET", queues_key(context.namespace), *queues)))
    configs: dict[str, QueueConfig] = {}
    for name, stored in zip(queues, reply.value, strict=True):
        if stored is not None:
            # As in `find_obstacle`, a row that cannot be read is no obstacle.
            with suppress(DataLoss):
                configs[name] = QueueConfig.from_bytes(name, stored)
    return _first_sink(configs, topics)


def _election_requests(context: NamespaceContext) -> list[Request]:
    keys = [shard_key(context.namespace, shard, "clock") for shard in range(context.shards)]
    return [Request(shard, command=("HMGET", key, *_FIELDS)) for shard, key in enumerate(keys)]


def _read_one_by_one(requests: Sequence[Request]) -> Plan[list[Reply]]:
    """Return the replies. Another program has changed the type of a shard's key: its fields count as missing."""
    replies: list[Reply] = []
    for request in requests:
        try:
            replies.append((yield from send_request(request)))
        except DataLoss:
            replies.append(Reply([None] * len(_FIELDS)))
    return replies


def _other_election(replies: Sequence[Reply], own: str) -> str:
    """Return a text if a shard is driven, or was driven last, by event processes of another kind of election."""
    for shard, reply in enumerate(replies):
        stored, former, embedded = reply.value
        if embedded is not None:
            return f"shard {shard} is on the embedded server of a data directory"
        kind = (stored or b"").decode(errors="replace")
        if kind not in ("", own):
            remedy = " (`tickwheel events` takes its shards over)" if kind == "lockfile" else ""
            return f"the event processes of shard {shard} have an election of the kind {kind!r}{remedy}"
        if not kind and former is not None:
            return (
                f"the event processes of shard {shard} had an election of the kind"
                f" {former.decode(errors='replace')!r} before `tickwheel shards reset-epoch` (the next `tickwheel"
                " events` decides the kind)"
            )
    return ""


def _first_sink(configs: Mapping[str, QueueConfig], topics: ServedTopics | None) -> Obstacle | None:
    """Return the obstacle of the first queue, by name, whose sink the candidate does not serve."""
    for name in sorted(name for name, config in configs.items() if config.sink is not None):
        if reason := _NO_KAFKA if topics is None else _refusal(configs[name].sink, topics):
            return Obstacle(f"queue {name!r} delivers to a sink, and {reason}", name)
    return None


def _refusal(sink: str | None, topics: ServedTopics) -> str:
    """Return why a candidate with Kafka does not serve the sink; an empty text if nothing speaks against it."""
    try:
        _, topic = split_sink_url(validate_sink_url(sink))
    except InvalidArgument:
        # As in `find_obstacle`, a damaged URL is no obstacle.
        return ""
    return topics.refusal(topic)
