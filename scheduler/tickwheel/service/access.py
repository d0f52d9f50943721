"""Who may do what: tokens from a file, each with a role on queues whose names match a pattern.

The file is TOML, and holds no secrets but their SHA-256: a token has 256 random bits, so there is nothing to guess.

    [[token]]
    name = "shop"                       # in the log and in metrics
    sha256 = "9f86d0…"                  # of the token
    roles = ["produce", "consume"]      # produce, consume, admin
    queues = ["orders", "mail.*"]       # as a shell's patterns; by default all
    namespaces = ["tw"]                 # by default ["tw"]
    expires = 2027-01-01T00:00:00Z      # by default never
"""

import hashlib
import hmac
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from tickwheel import arguments
from tickwheel.errors import Forbidden, InvalidArgument, Unauthenticated

PREFIX: Final = "tw_"
_BYTES = 32
_FIELDS: Final = {"name", "sha256", "roles", "queues", "namespaces", "expires"}


class Role(StrEnum):
    """What a token is for. Whoever has one on a queue may also look at it."""

    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"
    LOOK = "look"


# What is not named is to look.
ROLES: Final[Mapping[str, Role]] = {
    **dict.fromkeys(("Enqueue", "EnqueueBatch", "EnqueueStream", "Cancel", "Reschedule"), Role.PRODUCE),
    **dict.fromkeys(("Dequeue", "DequeueStream", "Complete", "Fail", "Release", "Extend", "GetLease"), Role.CONSUME),
    **dict.fromkeys(("CreateQueue", "BlockQueue", "Redrive", "SetSetting"), Role.ADMIN),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and what may be done then."""

    name: str
    digest: bytes = b""
    roles: frozenset[Role] = frozenset(Role)
    queues: tuple[str, ...] = ("*",)
    namespaces: tuple[str, ...] = ("*",)
    expires: datetime | None = None

    def check(self, role: Role, namespace: str, queue: str | None) -> None:
        """Raises Forbidden where the caller may not."""
        if not _fits(namespace, self.namespaces):
            raise Forbidden(f"token {self.name!r} is not for namespace {namespace!r}")
        if role is not Role.LOOK and role not in self.roles:
            raise Forbidden(f"token {self.name!r} has the roles {_named(self.roles)}; this call needs {role.value!r}")
        if queue is not None and not _fits(queue, self.queues):
            raise Forbidden(f"token {self.name!r} is not for queue {queue!r}")


ANYBODY: Final = Caller("anybody")
# Of the call that is answered now, and what it needs.
CALL: ContextVar[tuple[Caller, Role]] = ContextVar("call", default=(ANYBODY, Role.LOOK))


class Access:
    """The tokens of a file. Without one, anybody may do all."""

    def __init__(self, callers: Sequence[Caller] | None = None) -> None:
        self._callers = callers

    @classmethod
    def of_file(cls, path: Path) -> "Access":
        """Read the file. Raises InvalidArgument, which names what is wrong in it."""
        try:
            with path.open("rb") as file:
                document = tomllib.load(file)
        except OSError as error:
            raise InvalidArgument(f"the tokens of {path} cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{path} is no TOML: {error}") from error
        unknown = set(document) - {"token"}
        listed = document.get("token")
        if unknown or not isinstance(listed, list) or not listed:
            raise InvalidArgument(f"{path} must hold [[token]] tables, at least one, and nothing else")
        callers = [_caller(f"token {n} of {path}", each) for n, each in enumerate(listed, 1)]
        if len({caller.digest for caller in callers}) < len(callers):
            raise InvalidArgument(f"{path} names one token twice")
        return cls(callers)

    def caller(self, metadata: Sequence[tuple[str, str | bytes]] | None) -> Caller:
        """Whose token a call carries, as ``authorization: Bearer …``. Raises Unauthenticated."""
        if self._callers is None:
            return ANYBODY
        given = next((value for key, value in metadata or () if key == "authorization"), "")
        scheme, _, token = str(given).partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("this server answers to tokens: give one, as grpc://:TOKEN@host:port")
        digest = digest_of(token)
        found = None
        # All of them, however early one fits.
        for caller in self._callers:
            if hmac.compare_digest(caller.digest, digest):
                found = caller
        if found is None:
            raise Unauthenticated("this server does not know the token")
        if found.expires is not None and found.expires <= datetime.now(UTC):
            raise Unauthenticated(f"token {found.name!r} expired at {found.expires:%FT%TZ}")
        return found


def new_token() -> str:
    """A token, which nobody can guess."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def digest_of(token: str) -> bytes:
    """What a file holds of a token."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _caller(what: str, given: Any) -> Caller:
    if not isinstance(given, dict):
        raise InvalidArgument(f"{what} must be a table")
    arguments.known(what, given, _FIELDS)
    try:
        digest = bytes.fromhex(given.get("sha256", ""))
    except (TypeError, ValueError):
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise InvalidArgument(f"{what} has no sha256 of 64 hexadecimal digits, as `tickwheel token` prints it")
    roles = _texts(what, given, "roles", None)
    for role in roles:
        arguments.one_of(f"a role of {what}", role, [Role.PRODUCE.value, Role.CONSUME.value, Role.ADMIN.value])
    expires = given.get("expires")
    if expires is not None and (not isinstance(expires, datetime) or expires.tzinfo is None):
        raise InvalidArgument(f"expires of {what} must be a time with its zone, as 2027-01-01T00:00:00Z")
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{what} has no name")
    return Caller(
        name,
        digest,
        frozenset(map(Role, roles)),
        _texts(what, given, "queues", ("*",)),
        _texts(what, given, "namespaces", ("tw",)),
        expires,
    )


def _texts(what: str, given: Mapping[str, Any], name: str, default: tuple[str, ...] | None) -> tuple[str, ...]:
    found = given.get(name, default)
    if not isinstance(found, list | tuple) or not found or not all(isinstance(each, str) for each in found):
        raise InvalidArgument(f"{name} of {what} must be a list of texts, not {arguments.shown(found)}")
    return tuple(found)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return "*" in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _named(roles: frozenset[Role]) -> str:
    return ", ".join(sorted(role.value for role in roles))
