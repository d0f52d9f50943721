"""What operators ask of shards: who drives each, what waits, how late it was; and to forget who drove them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tickwheel.errors import TickwheelError
from tickwheel.model.results import Lateness
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.inspect import histogram
from tickwheel.operations.queues import list_queues
from tickwheel.plan import Command, Plan, Reply, Request, Round, pairs_from_flat, send_request
from tickwheel.storage.fence import FENCE_BYTES, epoch_of, shard_from_client_name
from tickwheel.storage.keys import queue_key, shard_key
from tickwheel.storage.scripts import bind, load


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard. ``owner`` (host:pid), ``election`` and ``epoch`` are of the last claim; "" and 0 where there was none.

    ``inbox`` counts entries of new timers that are not filed yet, ``oldest_ms`` is the age of the oldest of them, None
    where there is none. A driver files them within seconds.
    """

    shard: int
    owner: str
    epoch: int
    election: str
    inbox: int
    oldest_ms: int | None
    lateness: Lateness


def shard_statuses(context: NamespaceContext) -> Plan[list[ShardStatus]]:
    """Every shard as it stands, asked all at once."""
    queues = list((yield from list_queues(context)))
    requests = [
        Request(shard, command=command)
        for shard in range(context.shards)
        for command in _status_commands(context.namespace, shard, queues)
    ]
    replies: list[Reply] = yield Round(requests)
    values: dict[int, list[Any]] = {shard: [] for shard in range(context.shards)}
    for request, reply in zip(requests, replies, strict=True):
        values[request.shard].append(reply.value)
    return [_to_status(shard, *answers) for shard, answers in values.items()]


def followed_shards(context: NamespaceContext, server_shard: int) -> Plan[Counter[int]]:
    """The shards on the server of the asked one whose inboxes are followed at this moment, and by how many processes.

    Raises Forbidden where the user may not ask.
    """
    reply = yield from send_request(Request(server_shard, command=("CLIENT", "LIST")))
    clients = [line.split(" ") for line in reply.value.decode().splitlines() if " cmd=xread " in line]
    names = [word.removeprefix("name=") for client in clients for word in client if word.startswith("name=")]
    shards = [shard_from_client_name(context.namespace, name) for name in names]
    return Counter(shard for shard in shards if shard is not None)


def reset_epoch(context: NamespaceContext, shard: int) -> Plan[bool]:
    """Forget who drove the shard; whether anybody had."""
    call = bind(load("reset_epoch", context.clock), {"clock": shard_key(context.namespace, shard, "clock")}, [])
    reply = yield from send_request(Request(shard, call))
    return bool(reply.value)


def _status_commands(namespace: str, shard: int, queues: Iterable[str]) -> list[Command]:
    """What `_view` takes the answers to, in its order."""
    inbox = shard_key(namespace, shard, "inbox")
    return [
        ("TIME",),
        ("HMGET", shard_key(namespace, shard, "clock"), "fence", "election", "owner"),
        ("XLEN", inbox),
        ("XRANGE", inbox, "-", "+", "COUNT", 1),
        *(("HGETALL", queue_key(namespace, shard, queue, "lateness")) for queue in queues),
    ]


def _to_status(shard: int, time: Any, claim: Any, length: int, oldest: Any, *lateness: Any) -> ShardStatus:
    fence, election, owner = claim
    if fence is not None and len(fence) != FENCE_BYTES:
        raise TickwheelError(f"the fence of shard {shard} is damaged: {fence!r}; `tickwheel doctor` names all damage")
    now_ms = int(time[0]) * 1000 + int(time[1]) // 1000
    try:
        late = histogram(field for flat in lateness for field in pairs_from_flat(flat))
    except ValueError as error:
        raise TickwheelError(
            f"the lateness of shard {shard} is damaged: {error}; `tickwheel doctor` names all damage"
        ) from error
    return ShardStatus(
        shard,
        owner.decode() if owner else "",
        epoch_of(fence) if fence else 0,
        election.decode() if election else "",
        length,
        max(0, now_ms - int(oldest[0][0].partition(b"-")[0])) if oldest else None,
        late,
    )
