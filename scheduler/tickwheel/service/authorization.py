"""Who may do what: each call carries a token, and a token has roles on queues whose names match a pattern."""

import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from tickwheel.errors import Forbidden, Unauthenticated
from tickwheel.service.token_quota import ConcurrencyLimit, TokenQuota

PREFIX: Final = "tw_"
_BYTES = 32


class Role(StrEnum):
    """What a token is for. Whoever has one on a queue may also look at it."""

    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"
    READ = "look"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and what may be done then. What its ``usage`` may be stays with the token when the file changes."""

    name: str
    digest: bytes = b""
    roles: frozenset[Role] = frozenset(Role)
    queues: tuple[str, ...] = ("*",)
    namespaces: tuple[str, ...] = ("*",)
    expires: datetime | None = None
    messages_per_second: int | None = None
    burst: int | None = None
    waiting: int | None = None
    quota: TokenQuota = field(default_factory=lambda: TokenQuota("anybody"), compare=False, repr=False)

    @property
    def rights(self) -> tuple[object, ...]:
        """What a call that is under way was allowed by."""
        return self.roles, self.queues, self.namespaces, self.expires

    def check(self, role: Role, namespace: str, queue: str | None) -> None:
        """Raises Forbidden where the caller may not."""
        if not _matches_any(namespace, self.namespaces):
            raise Forbidden(f"token {self.name!r} is not for namespace {namespace!r}")
        if role is not Role.READ and role not in self.roles:
            raise Forbidden(
                f"token {self.name!r} has the roles {_role_names(self.roles)}; this call needs {role.value!r}"
            )
        if queue is not None and not _matches_any(queue, self.queues):
            raise Forbidden(f"token {self.name!r} is not for queue {queue!r}")

    @asynccontextmanager
    async def hold_wait_slot(self, wait_limit: ConcurrencyLimit) -> AsyncIterator[None]:
        """A call that waits, or a stream: it has a place of all and one of its token's, as long as the token is good.

        Others are over soon anyway.
        """
        with wait_limit.acquire(), self.quota.wait_limit.acquire():
            async with self.until_token_expires():
                yield

    @asynccontextmanager
    async def until_token_expires(self) -> AsyncIterator[None]:
        """A call that ends with its token."""
        if not self.digest:
            yield
            return
        async with self.quota.track_call(self.rights, self.expires_in_s()):
            yield

    def expires_in_s(self) -> float | None:
        """How long the token is good, 0 or less where it is no more; None for ever."""
        return None if self.expires is None else (self.expires - datetime.now(UTC)).total_seconds()


ANONYMOUS: Final = Caller("anybody")
UNKNOWN_CALLER: Final = Caller("nobody", roles=frozenset(), queues=(), namespaces=())
# Of the call that is answered now, and what it needs.
CALL: ContextVar[tuple[Caller, Role]] = ContextVar("call", default=(ANONYMOUS, Role.READ))


class TokenStore:
    """The tokens that are good now. Without any, anybody may do all."""

    def __init__(self, callers: Sequence[Caller] | None = None) -> None:
        self._callers: Sequence[Caller] | None = None
        if callers is not None:
            self.replace(callers)

    def replace(self, callers: Sequence[Caller]) -> None:
        """These and no others from now on. Calls that wait end where their token is not among them, and where it has
        other rights than before: those are made again by their clients.
        """
        previous = {caller.digest: caller for caller in self._callers or ()}
        current = []
        for caller in callers:
            existing = previous.pop(caller.digest, None)
            updated = replace(caller, quota=TokenQuota(caller.name) if existing is None else existing.quota)
            updated.quota.update_limits(caller.rights, caller.messages_per_second, caller.burst, caller.waiting)
            current.append(updated)
        self._callers = tuple(current)
        for removed in previous.values():
            removed.quota.revoke()

    def authenticate(self, metadata: Sequence[tuple[str, str | bytes]] | None) -> Caller:
        """Whose token a call carries, as ``authorization: Bearer …``. Raises Unauthenticated."""
        if self._callers is None:
            return ANONYMOUS
        header = next((value for key, value in metadata or () if key == "authorization"), "")
        scheme, _, token = str(header).partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("this server answers to tokens: give one, as grpc://:TOKEN@host:port")
        digest = digest_of(token)
        matched = None
        # All of them, however early one fits.
        for caller in self._callers:
            if hmac.compare_digest(caller.digest, digest):
                matched = caller
        if matched is None:
            raise Unauthenticated("this server does not know the token")
        left_s = matched.expires_in_s()
        if left_s is not None and left_s <= 0:
            raise Unauthenticated(f"token {matched.name!r} expired at {matched.expires:%FT%TZ}")
        return matched


def new_token() -> str:
    """A token, which nobody can guess."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def digest_of(token: str) -> bytes:
    """What a file holds of a token."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    return "*" in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _role_names(roles: frozenset[Role]) -> str:
    return ", ".join(sorted(role.value for role in roles))
