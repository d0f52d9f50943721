"""Authorization: each call carries a token. A token has roles on the queues and namespaces that match its patterns."""

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

from tickwheel import limits
from tickwheel.errors import Forbidden, Unauthenticated
from tickwheel.operations.queues import CreationLimit
from tickwheel.service.token_quota import ConcurrencyLimit, TokenQuota

PREFIX: Final = "tw_"
_BYTES = 32


class Role(StrEnum):
    """A permission of a token. Every token may read (READ) the queues that match its patterns."""

    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"
    READ = "look"


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a token, with the token's rights and limits. Its ``quota`` survives reloads of the token file."""

    name: str
    digest: bytes = b""
    roles: frozenset[Role] = frozenset(Role)
    queues: tuple[str, ...] = ("*",)
    namespaces: tuple[str, ...] = ("*",)
    expires: datetime | None = None
    messages_per_second: int | None = None
    burst: int | None = None
    waiting: int | None = None
    auto_created_queues: int = limits.AUTO_CREATED_QUEUES
    quota: TokenQuota = field(default_factory=lambda: TokenQuota("anybody"), compare=False, repr=False)

    @property
    def rights(self) -> tuple[object, ...]:
        """The rights on which a call in flight relies. If they change, the call ends."""
        return self.roles, self.queues, self.namespaces, self.expires

    def check(self, role: Role, namespace: str, queue: str | None) -> None:
        """Raise Forbidden if the caller lacks the role, or has no access to the namespace or queue."""
        if not _matches_any(namespace, self.namespaces):
            raise Forbidden(f"token {self.name!r} is not for namespace {namespace!r}")
        if role is not Role.READ and role not in self.roles:
            raise Forbidden(
                f"token {self.name!r} has the roles {', '.join(sorted(self.roles))}; this call needs {role.value!r}"
            )
        if queue is not None and not _matches_any(queue, self.queues):
            raise Forbidden(f"token {self.name!r} is not for queue {queue!r}")

    @asynccontextmanager
    async def hold_wait_slot(self, wait_limit: ConcurrencyLimit) -> AsyncIterator[None]:
        """Run a waiting call or a stream in the ``with`` block, while its token is valid. The call holds a permit of
        the process and a permit of its token. Raises LimitExceeded if no permit is free.

        Other calls need no permit, because they end soon.
        """
        with wait_limit.acquire(), self.quota.wait_limit.acquire():
            async with self.until_token_expires():
                yield

    @asynccontextmanager
    async def until_token_expires(self) -> AsyncIterator[None]:
        """Run a call in the ``with`` block, and interrupt the block if the token expires, is removed or changes."""
        if not self.digest:
            yield
            return
        async with self.quota.track_call(self.rights, self.expires_in_s()):
            yield

    def expires_in_s(self) -> float | None:
        """Return the seconds until the token expires, 0 or less if it has expired, or None if it never does."""
        return None if self.expires is None else (self.expires - datetime.now(UTC)).total_seconds()


ANONYMOUS: Final = Caller("anybody")
UNKNOWN_CALLER: Final = Caller("nobody", roles=frozenset(), queues=(), namespaces=())
# The caller of the current call, and the role that the call needs.
CALL: ContextVar[tuple[Caller, Role]] = ContextVar("call", default=(ANONYMOUS, Role.READ))


def creation_limit() -> CreationLimit | None:
    """Return the limit of auto-create for the caller of the current call; None without tokens."""
    caller, _ = CALL.get()
    return CreationLimit(caller.name, caller.auto_created_queues) if caller.digest else None


class TokenStore:
    """The valid tokens. Without tokens (None), every caller has all rights."""

    def __init__(self, callers: Sequence[Caller] | None = None) -> None:
        self._callers: Sequence[Caller] | None = None
        if callers is not None:
            self.replace(callers)

    def replace(self, callers: Sequence[Caller]) -> None:
        """Replace the set of valid tokens. Waiting calls end if their token was removed, or if its rights changed; in
        the second case the client retries them.
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
        """Return the caller whose token a call carries, as ``authorization: Bearer …``.

        Raises Unauthenticated if the token is missing, unknown or expired.
        """
        if self._callers is None:
            return ANONYMOUS
        header = next((value for key, value in metadata or () if key == "authorization"), "")
        scheme, _, token = str(header).partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("this server requires a token: put it in the URL, as grpc://:TOKEN@host:port")
        digest = digest_of(token)
        matched = None
        # Compares with every token, so that the time does not reveal which one matches.
        for caller in self._callers:
            if hmac.compare_digest(caller.digest, digest):
                matched = caller
        if matched is None:
            raise Unauthenticated("the token file of this server does not contain the token of the call")
        left_s = matched.expires_in_s()
        if left_s is not None and left_s <= 0:
            raise Unauthenticated(f"token {matched.name!r} expired at {matched.expires:%FT%TZ}")
        return matched


def new_token() -> str:
    """Return a new random token of 256 bits."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def digest_of(token: str) -> bytes:
    """Return the SHA-256 of a token. The token file contains this digest instead of the token."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    return "*" in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
