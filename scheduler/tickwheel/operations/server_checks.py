"""Checks of a server before it is used: version, eviction policy, permissions, and durability."""

from dataclasses import dataclass
from typing import Any

from tickwheel.errors import Forbidden, InvalidArgument, NotDurable, TickwheelError
from tickwheel.model import validation
from tickwheel.plan import ListPrimaries, Plan, Reply, Request, Round, send_request
from tickwheel.storage.keys import queue_key, shard_key
from tickwheel.storage.scripts import Call, load

# Sharded publish/subscribe and `#!lua` script flags came with Redis 7.0; Valkey reports 7.2.4 as its `redis_version`.
VERSION_MIN = (7, 0)


@dataclass(frozen=True, slots=True)
class Durability:
    """The durability of an acknowledged call: in the server's ``memory``, on its disk (``fsync``), or on n replicas."""

    name: str
    replicas: int = 0


def parse_durability(value: object) -> Durability:
    """Return the durability that ``memory``, ``fsync`` or ``replica:N`` (N from 1 to 16) names.

    Raises InvalidArgument.
    """
    if isinstance(value, str) and value in ("memory", "fsync"):
        return Durability(validation.to_plain_str(value))
    if isinstance(value, str) and value.startswith("replica:"):
        number = value.removeprefix("replica:")
        if number.isascii() and number.isdigit() and 1 <= int(number) <= 16:
            return Durability("replica", int(number))
    raise InvalidArgument(
        f"durability must be 'memory', 'fsync' or 'replica:N' with N from 1 to 16, not {validation.preview(value)}"
    )


def check_server(durability: Durability, namespace: str) -> Plan[None]:
    """Check that the server keeps acknowledged data, and that the connection's user may run all scripts.

    Raises NotDurable, Forbidden, or TickwheelError if the server's version is too old. In a cluster, every primary is
    checked. Replicas are not checked: the operator must configure them like their primaries.
    """
    servers: dict[str, int] = yield ListPrimaries()
    for shard in servers.values():
        yield from _check(durability, namespace, shard)


def _check(durability: Durability, namespace: str, shard: int) -> Plan[None]:
    """Check the server of the shard."""
    requests = [Request(shard, command=("INFO", section)) for section in ("server", "memory")]
    replies: list[Reply] = yield Round(requests)
    server, memory = (_fields(reply.value) for reply in replies)
    version = tuple(int(part) for part in server["redis_version"].split(".")[:2])
    if version < VERSION_MIN:
        raise TickwheelError(
            f"the server is Redis {server['redis_version']}; Redis 7.0 or Valkey 7.2 is the minimum version"
        )
    policy = memory.get("maxmemory_policy", "noeviction")
    if memory.get("maxmemory", "0") != "0" and policy != "noeviction":
        raise NotDurable(
            f"the server evicts keys, including messages, when its memory is full (maxmemory-policy {policy}):"
            " set it to noeviction"
        )
    keys = [shard_key(namespace, shard, "clock"), queue_key(namespace, shard, "", "wake")]
    reply = yield from send_request(Request(shard, Call(load("check_permissions"), keys, [])))
    if reply.value:
        denied = ", ".join(name.decode() for name in reply.value)
        raise Forbidden(
            f"the server's user may not run {denied} on the keys and channels of namespace {namespace!r}, but scripts"
            " need these commands; docs/operations.md lists all permissions"
        )
    if durability.name == "fsync":
        requests = [Request(shard, command=("CONFIG", "GET", name)) for name in ("appendonly", "appendfsync")]
        replies = yield Round(requests)
        appendonly, appendfsync = (reply.value[1].decode() if reply.value else "unknown" for reply in replies)
        if (appendonly, appendfsync) != ("yes", "always"):
            raise NotDurable(
                "durability 'fsync' needs a server with appendonly yes and appendfsync always; this server has"
                f" appendonly {appendonly} and appendfsync {appendfsync}"
            )


def _fields(info: Any) -> dict[str, str]:
    text: str = info.decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
