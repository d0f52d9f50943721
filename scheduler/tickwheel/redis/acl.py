"""The ACL users of one namespace, each with the minimum of commands and keys that its processes need.

A script runs with the permissions of the user who calls the script. The server refuses every command and key that is
not listed here. Tests run all processes under these users.
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from tickwheel.model import validation

# The commands that scripts call, and those that surround a script call. Every user may run all of them, because a
# script whose third command is refused has already executed the first two. `lua/check_permissions.lua` finds missing
# permissions. Users differ by their keys.
_SCRIPTS: Final = (
    "exists get set unlink",
    "hget hmget hgetall hvals hlen hstrlen hset hdel hincrby",
    "llen lrange ltrim rpush",
    "xadd xtrim xrange xlen",
    "zadd zrem zremrangebyrank zrange zrangebylex zlexcount zrank zscore",
    "spublish time info multi exec",
)
# The commands that every process sends outside scripts. SCAN, CLIENT LIST and CONFIG GET are not among them: the server
# cannot limit these commands to one namespace. The programs work without them, and report what they cannot check.
_CLIENT: Final = (
    "evalsha script|load ping select wait asking cluster|slots",
    "ssubscribe sunsubscribe hsetnx hscan zcount",
)
_EVENTS: Final = ("xread client|setname",)
_OPERATOR: Final = ("type pttl xinfo|stream xrevrange hexists zscan",)

# _MESSAGES: the keys of messages. _METADATA: the keys of the metadata shard. _ALL: also the keys of the wheel, for
# event processes and operators.
_MESSAGES: Final = ("clock", "messages", "bodies", "inbox", "events", "adopted", "session:*", "q:*")
_METADATA: Final = ("namespace", "queues", "settings")
_ALL: Final = ("*",)
# The channels of clients. They do not include `election`: a flood of messages there could keep an event process busy.
_CLIENT_CHANNELS: Final = ("adopted", "q:*")


@dataclass(frozen=True, slots=True)
class User:
    """One user. ``rule`` contains only the SHA-256 of the password, so no ACL file contains the password itself."""

    name: str
    password: str
    rule: str


def users(namespace: str) -> list[User]:
    """Return the users for clients and the service, for event processes and for operators, with random passwords."""
    prefix = f"{validation.plain_name('namespace', namespace)}:{{*}}:"
    return [
        _user(f"{namespace}-service", prefix, _MESSAGES + _METADATA, _CLIENT_CHANNELS, _SCRIPTS + _CLIENT),
        _user(f"{namespace}-events", prefix, _ALL, _ALL, _SCRIPTS + _CLIENT + _EVENTS),
        _user(f"{namespace}-operator", prefix, _ALL, _ALL, _SCRIPTS + _CLIENT + _OPERATOR),
    ]


def _user(name: str, prefix: str, keys: tuple[str, ...], channels: tuple[str, ...], commands: tuple[str, ...]) -> User:
    password = secrets.token_urlsafe(32)
    allowed = " ".join(f"+{command}" for command in sorted(set(" ".join(commands).split())))
    patterns = " ".join([f"~{prefix}{key}" for key in keys] + [f"&{prefix}{channel}" for channel in channels])
    digest = hashlib.sha256(password.encode()).hexdigest()
    return User(name, password, f"user {name} on #{digest} {patterns} {allowed}")
