"""The users that a Redis or Valkey needs for one namespace, each with the commands and keys of its process and no more.

A script has the rights of its user, so it does nothing that the user could not do by itself. What is not named here is
refused; tests watch the processes at work under these users.
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from tickwheel.model import validation

# The commands that scripts call. Every process needs all of them (`lua/check_permissions.lua`): a script that is
# refused halfway has done half of its work. So processes differ by their keys.
_SCRIPTS: Final = (
    "exists get set unlink",
    "hget hmget hgetall hvals hlen hstrlen hset hdel hincrby",
    "llen lrange ltrim rpush",
    "xadd xtrim xrange xlen",
    "zadd zrem zremrangebyrank zrange zrangebylex zlexcount zrank zscore",
    "spublish time multi exec",
)
# What every process sends itself.
_CLIENT: Final = (
    "evalsha script|load ping select info config|get wait asking cluster|slots client|setinfo",
    "ssubscribe hsetnx hscan zcount",
)
_EVENTS: Final = ("xread sunsubscribe client|setname",)
_OPERATOR: Final = ("scan type pttl xinfo|stream xrevrange hexists zscan client|list client|setname",)

# What messages are kept in, and what the wheel is: only event processes turn it, and only operators look.
_MESSAGES: Final = ("clock", "messages", "bodies", "inbox", "events", "adopted", "session:*", "q:*")
_HOME: Final = ("namespace", "queues", "settings")
_ALL: Final = ("*",)


@dataclass(frozen=True, slots=True)
class User:
    """One user. Its password is in no file: the rule has its SHA-256."""

    name: str
    password: str
    rule: str


def users(namespace: str) -> list[User]:
    """Those of the service and its like, of event processes, and of operators; each with a password of its own."""
    prefix = f"{validation.plain_name('namespace', namespace)}:{{*}}:"
    return [
        _user(f"{namespace}-service", prefix, _MESSAGES + _HOME, _SCRIPTS + _CLIENT),
        _user(f"{namespace}-events", prefix, _ALL, _SCRIPTS + _CLIENT + _EVENTS),
        _user(f"{namespace}-operator", prefix, _ALL, _SCRIPTS + _CLIENT + _OPERATOR),
    ]


def _user(name: str, prefix: str, keys: tuple[str, ...], commands: tuple[str, ...]) -> User:
    password = secrets.token_urlsafe(32)
    allowed = " ".join(f"+{command}" for command in sorted(set(" ".join(commands).split())))
    patterns = " ".join(f"~{prefix}{key}" for key in keys)
    digest = hashlib.sha256(password.encode()).hexdigest()
    return User(name, password, f"user {name} on #{digest} {patterns} &{prefix}* {allowed}")
