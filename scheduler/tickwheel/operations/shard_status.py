"""Status of shards for operators: leader, inbox and lateness of each shard; and the reset of a shard's epoch."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tickwheel.errors import DataLoss
from tickwheel.model.results import Lateness
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.inspect import histogram
from tickwheel.operations.queues import list_queues
from tickwheel.plan import Command, Plan, Reply, Request, Round, pairs_from_flat, send_request
from tickwheel.storage.fence import epoch_of, is_fence, shard_from_client_name
from tickwheel.storage.keys import queue_key, shard_key
from tickwheel.storage.scripts import bind, load
from tickwheel.storage.stored_text import decode_text
from tickwheel.storage.stream_id import age_ms


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """The status of one shard.

    ``owner`` (host:pid), ``election`` (the kind of election) and ``epoch`` belong to the last claim of the shard. If
    the shard was never claimed, these fields are "" and 0. ``inbox`` is the number of entries with timers that are
    not filed yet; a driver files them within seconds. ``oldest_ms`` is the age of the oldest entry; None if the inbox
    is empty, or if the age is unknown (`stream_id.age_ms`).
    """

    shard: int
    owner: str
    epoch: int
    election: str
    inbox: int
    oldest_ms: int | None
    lateness: Lateness


@dataclass(frozen=True, slots=True)
class Follower:
    """A connection with the name of a shard's event process whose last command was to read an inbox.

    Every user can give a connection this name (HELLO 3 SETNAME), so a follower may be no event process. It counts
    nevertheless: a command must not go on while an event process runs.
    """

    shard: int
    client_id: str
    user: str
    address: str

    @property
    def explanation(self) -> str:
        """The reason why commands that need an idle shard are refused, and the remedies."""
        return (
            f"connection {self.client_id} of user {self.user!r} from {self.address} reads the inbox of shard"
            f" {self.shard}. End all event processes first: `tickwheel shards` names them. If this connection is not of"
            f" an event process, end it as an administrator of the server: `CLIENT KILL ID {self.client_id}`"
        )


def shard_statuses(context: NamespaceContext) -> Plan[list[ShardStatus]]:
    """Return the status of every shard, read in one round."""
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


def list_followers(context: NamespaceContext, server_shard: int) -> Plan[list[Follower]]:
    """Return the connections that now read the inboxes of shards, for the shards on the server of ``server_shard``.

    Raises Forbidden if the user may not run CLIENT LIST.
    """
    reply = yield from send_request(Request(server_shard, command=("CLIENT", "LIST")))
    followers = []
    for line in reply.value.decode(errors="backslashreplace").splitlines():
        client = {name: value for name, _, value in (word.partition("=") for word in line.split(" "))}
        shard = shard_from_client_name(context.namespace, client.get("name", ""))
        if shard is not None and client.get("cmd") == "xread":
            followers.append(Follower(shard, client["id"], client.get("user", "default"), client.get("addr", "")))
    return followers


def reset_epoch(context: NamespaceContext, shard: int) -> Plan[bool]:
    """Remove the last claim of the shard. Return whether there was one."""
    call = bind(load("reset_epoch", context.clock), {"clock": shard_key(context.namespace, shard, "clock")}, [])
    reply = yield from send_request(Request(shard, call, durable=True))
    return bool(reply.value)


def _status_commands(namespace: str, shard: int, queues: Iterable[str]) -> list[Command]:
    """Return the commands whose replies `_to_status` takes, in its order."""
    inbox = shard_key(namespace, shard, "inbox")
    return [
        ("HMGET", shard_key(namespace, shard, "clock"), "fence", "election", "owner"),
        ("XLEN", inbox),
        ("XRANGE", inbox, "-", "+", "COUNT", 1),
        # After the inbox, because then no id of the inbox is ahead of a correct clock.
        ("TIME",),
        *(("HGETALL", queue_key(namespace, shard, queue, "lateness")) for queue in queues),
    ]


def _to_status(shard: int, claim: Any, length: int, oldest: Any, time: Any, *lateness: Any) -> ShardStatus:
    fence, election, owner = claim
    if fence is not None and not is_fence(fence):
        raise DataLoss(f"the fence of shard {shard} is damaged: {fence!r}; run `tickwheel doctor` to list all damage")
    now_ms = int(time[0]) * 1000 + int(time[1]) // 1000
    try:
        late = histogram(field for flat in lateness for field in pairs_from_flat(flat))
    except ValueError as error:
        raise DataLoss(
            f"the lateness of shard {shard} is damaged: {error}; run `tickwheel doctor` to list all damage"
        ) from error
    return ShardStatus(
        shard,
        decode_text(f"the owner of shard {shard}", owner or b""),
        epoch_of(fence) if fence else 0,
        decode_text(f"the election of shard {shard}", election or b""),
        length,
        age_ms(oldest[0][0], now_ms) if oldest else None,
        late,
    )
