"""Checks of a server before it is used: version, eviction policy, permissions, and durability."""

import re
from dataclasses import dataclass

from tickwheel.errors import Forbidden, InvalidArgument, NotDurable, TickwheelError
from tickwheel.model import validation
from tickwheel.operations.attestation import (
    explain_missing_attestation,
    explain_unfit_settings,
    read_append_settings,
)
from tickwheel.operations.server_info import read_info
from tickwheel.plan import ListPrimaries, Plan, Request, send_request
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
        if re.fullmatch(r"[0-9]{1,2}", number) and 1 <= int(number) <= 16:
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
    info = yield from read_info(shard, "server", "memory")
    version = tuple(int(part) for part in info["redis_version"].split(".")[:2])
    if version < VERSION_MIN:
        raise TickwheelError(
            f"the server is Redis {info['redis_version']}; Redis 7.0 or Valkey 7.2 is the minimum version"
        )
    policy = info.get("maxmemory_policy", "is not reported")
    if info.get("maxmemory") != "0" and policy != "noeviction":
        raise NotDurable(
            f"the server evicts keys, including messages, when its memory is full (maxmemory-policy {policy}):"
            " set it to noeviction"
        )
    if denied := (yield from find_denied_commands(namespace, shard)):
        raise Forbidden(
            f"the server's user may not run {', '.join(denied)} on the keys and channels of namespace {namespace!r},"
            " but scripts need these commands; `tickwheel acl` prints users with all permissions"
        )
    if durability.name == "fsync":
        yield from _check_fsync(namespace, shard)


def find_denied_commands(namespace: str, shard: int) -> Plan[list[str]]:
    """Return the commands that scripts need, and that the user may not run on the keys and channels of clients."""
    reply = yield from send_request(permissions_request(namespace, shard))
    return [name.decode() for name in reply.value]


def permissions_request(namespace: str, shard: int) -> Request:
    """Return the request whose reply names the commands of `find_denied_commands`."""
    keys = [shard_key(namespace, shard, "clock"), queue_key(namespace, shard, "", "wake")]
    return Request(shard, Call(load("check_permissions"), keys, []))


def _check_fsync(namespace: str, shard: int) -> Plan[None]:
    """Check that the server writes to its disk before it answers: by its settings, or else by an attestation."""
    settings = yield from read_append_settings(shard)
    if settings is None:
        missing = yield from explain_missing_attestation(namespace, shard)
        if missing is not None:
            raise NotDurable(
                f"durability 'fsync' cannot be checked: this user may not run CONFIG GET, and {missing}. Run"
                f" `tickwheel doctor --attest --namespace {namespace}` as an administrator of the server, or let this"
                " user run CONFIG GET (which shows the passwords in the server's settings, too), or use another"
                " durability"
            )
    elif (unfit := explain_unfit_settings(settings)) is not None:
        raise NotDurable(f"durability {unfit}")
