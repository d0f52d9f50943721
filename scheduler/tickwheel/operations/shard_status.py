"""Status of shards for operators: leader, inbox and lateness of each shard; and the reset of a shard's epoch."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tickwheel.errors import DataLoss
from tickwheel.model.results import Lateness
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.inspect import histogram
from tickwheel.operations.queues import list_queues
from tickwheel.operations.server_info import read_info
from tickwheel.plan import Command, ListPrimaries, Pause, Plan, Reply, Request, Round, pairs_from_flat, send_request
from tickwheel.storage.fence import epoch_of, is_fence, shard_from_client_name
from tickwheel.storage.keys import election_key, queue_key, shard_key
from tickwheel.storage.scripts import bind, load
from tickwheel.storage.stored_text import decode_text
from tickwheel.storage.stream_id import age_ms

# Time within which an event process connects to a server again that was started or promoted: its calls to the previous
# server end within 5 s (`stream_tail.DEAD_MS`, `pools.ANSWER_S`), and the longest wait before its next attempt is 2 s
# (`Backoff`).
RECONNECT_S: Final = 8.0
# The remedy if processes drive a namespace, or would drive it soon. Event processes also run as children of programs.
END_ALL: Final = (
    "End all event processes first, also those of workers and services (start these with `--drive never`), and of"
    " clients with `drive=True`"
)
_PAUSE_S: Final = 0.5

_log = logging.getLogger("tickwheel.operations")


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
            f" {self.shard}. {END_ALL}: `tickwheel shards` names them. If this connection is not of an event process,"
            f" end it as an administrator of the server: `CLIENT KILL ID {self.client_id}`"
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


def find_followers(context: NamespaceContext) -> Plan[list[Follower]]:
    """Return the connections that read the inboxes of shards, on all primaries.

    If a primary was started or promoted, event processes may not be connected to it yet. Unless one is found, check
    again until RECONNECT_S after the start. A server does not report when it was promoted, so the time after a
    promotion counts from the first check. Raises Forbidden if the user may not run CLIENT LIST.
    """
    waited_s = 0.0
    # When the checks have begun, by the process of the server and its promotion.
    first_checks: dict[tuple[str, str], float] = {}
    while True:
        followers: list[Follower] = []
        left_s = 0.0
        for shard in (yield ListPrimaries()).values():
            followers += yield from list_followers(context, shard)
            info = yield from read_info(shard, "server", "replication")
            age_s = float(info["uptime_in_seconds"])
            # The identity of the replication before the promotion; zeros if there was none.
            promotion = info.get("master_replid2", "").strip("0")
            if promotion:
                age_s = min(age_s, waited_s - first_checks.setdefault((info["run_id"], promotion), waited_s))
            left_s = max(left_s, RECONNECT_S - age_s)
        if followers or left_s <= 0:
            return followers
        if not waited_s:
            _log.warning(
                "a server of namespace %s was restarted or promoted: checking for up to %.0f s whether event processes"
                " connect again",
                *(context.namespace, left_s),
            )
        yield Pause(_PAUSE_S)
        waited_s += _PAUSE_S


def reset_epoch(context: NamespaceContext, shard: int) -> Plan[bool]:
    """Remove the last claim of the shard. Return whether there was one."""
    call = bind(load("reset_epoch", context.clock), {"clock": shard_key(context.namespace, shard, "clock")}, [])
    reply = yield from send_request(Request(shard, call, durable=True))
    if shard == 0:
        # The members and the assignment of an election by lease. Nobody takes part: event processes are ended before.
        yield from send_request(Request(shard, command=("UNLINK", election_key(context.namespace))))
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
