"""Authorization: each call carries a token. The grants of a token give it roles on queues and namespaces."""

import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from tickwheel import limits
from tickwheel.errors import Forbidden, Unauthenticated
from tickwheel.model.sink_url import split_sink_url
from tickwheel.model.validation import preview
from tickwheel.operations.queues import CreationLimit
from tickwheel.service.token_quota import ConcurrencyLimit, LocalCounters, TokenQuota

PREFIX: Final = "tw_"
_BYTES = 32


class Role(StrEnum):
    """A permission of a token on some queues. Every other role includes READ."""

    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"
    READ = "read"


# In place of a queue: all queues of the namespace. A grant is for all queues only if ``*`` is one of its patterns. No
# queue can have this name.
ALL_QUEUES: Final = "*"


@dataclass(frozen=True, slots=True)
class Grant:
    """Roles on the queues that match a pattern of ``queues``, in the namespaces that match one of ``namespaces``.

    With the role ADMIN, the sinks of these queues may have the topics that match a pattern of ``sinks``.
    """

    roles: frozenset[Role] = frozenset(Role)
    queues: tuple[str, ...] = (ALL_QUEUES,)
    namespaces: tuple[str, ...] = ("*",)
    sinks: tuple[str, ...] = ()

    def covers(self, namespace: str, queue: str | None) -> bool:
        """Return whether the grant is for the namespace and the queue. None means any queue: the namespace decides."""
        return _matches_any(namespace, self.namespaces) and (queue is None or _matches_any(queue, self.queues))

    def has(self, role: Role) -> bool:
        """Return whether the grant has the role. Every role includes READ."""
        return role in self.roles or (role is Role.READ and bool(self.roles))


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a token, with the token's grants and limits. Its ``quota`` survives reloads of the token file."""

    name: str
    digest: bytes = b""
    grants: tuple[Grant, ...] = (Grant(),)
    expires: datetime | None = None
    messages_per_second: int | None = None
    burst: int | None = None
    waiting: int | None = None
    auto_created_queues: int = limits.AUTO_CREATED_QUEUES
    quota: TokenQuota = field(default_factory=lambda: TokenQuota("anybody"), compare=False, repr=False)

    @property
    def rights(self) -> tuple[object, ...]:
        """The rights on which a call in flight relies. If they change, the call ends."""
        return self.grants, self.expires

    def may(self, role: Role, namespace: str, queue: str | None) -> bool:
        """Return whether one grant gives the role on the queue: on `ALL_QUEUES`, or on any queue if it is None."""
        return any(grant.has(role) and grant.covers(namespace, queue) for grant in self.grants)

    def check(self, role: Role, namespace: str, queue: str | None) -> None:
        """Raise Forbidden if the caller may not use the role on the queue; see `may`."""
        if not self.may(role, namespace, queue):
            raise Forbidden(self._refusal(role, namespace, queue))

    def check_sink(self, namespace: str, queue: str, sink: str) -> None:
        """Raise Forbidden if no grant with the role ADMIN on the queue permits the topic of the sink."""
        _, topic = split_sink_url(sink)
        grants = (grant for grant in self.grants if grant.has(Role.ADMIN) and grant.covers(namespace, queue))
        if not any(_matches_any(topic, grant.sinks) for grant in grants):
            raise Forbidden(
                f"token {self.name!r} may not set the topic {preview(topic)} as the sink of queue {preview(queue)}: the"
                " topic must match a pattern of 'sinks', in the tokens file, of a grant with the role 'admin' on this"
                " queue"
            )

    def _refusal(self, role: Role, namespace: str, queue: str | None) -> str:
        if not self.may(Role.READ, namespace, None):
            return f"token {self.name!r} is not for namespace {preview(namespace)}"
        if queue == ALL_QUEUES:
            return (
                f"token {self.name!r} is not for all queues (the pattern '*') with the role {role.value!r}: this call"
                f" needs {role.value!r} on all queues, because it concerns the whole namespace"
            )
        roles = {role for grant in self.grants if grant.covers(namespace, queue) for role in grant.roles}
        if not roles:
            return f"token {self.name!r} is not for queue {preview(queue)}"
        where = "" if queue is None else f" on queue {preview(queue)}"
        return f"token {self.name!r} has the roles {', '.join(sorted(roles))}{where}; this call needs {role.value!r}"

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


ANONYMOUS: Final = Caller("anybody", grants=(Grant(sinks=("*",)),))
UNKNOWN_CALLER: Final = Caller("nobody", grants=())
# The caller of the current call, and the role that the call needs.
CALL: ContextVar[tuple[Caller, Role]] = ContextVar("call", default=(ANONYMOUS, Role.READ))


def creation_limit() -> CreationLimit | None:
    """Return the limit of auto-create for the caller of the current call; None without tokens."""
    caller, _ = CALL.get()
    return CreationLimit(caller.name, caller.auto_created_queues, caller.quota.charge) if caller.digest else None


class TokenStore:
    """The valid tokens. Without tokens (None), every caller has all rights."""

    def __init__(
        self, callers: Sequence[Caller] | None = None, counters: Callable[[bytes], LocalCounters] | None = None
    ) -> None:
        """``counters`` returns the counters of a token, by its digest; by default they are those of this process."""
        # By the digests of the tokens; None without tokens.
        self._callers: dict[bytes, Caller] | None = None
        self._counters = counters or (lambda digest: LocalCounters())
        if callers is not None:
            self.replace(callers)

    def replace(self, callers: Sequence[Caller]) -> None:
        """Replace the set of valid tokens. Waiting calls end if their token was removed, or if its rights changed; in
        the second case the client retries them.
        """
        previous = dict(self._callers or {})
        current = {}
        for caller in callers:
            existing = previous.pop(caller.digest, None)
            updated = replace(caller, quota=self._make_quota(caller) if existing is None else existing.quota)
            updated.quota.update_limits(caller.rights, caller.messages_per_second, caller.burst, caller.waiting)
            current[caller.digest] = updated
        self._callers = current
        for removed in previous.values():
            removed.quota.revoke()

    def _make_quota(self, caller: Caller) -> TokenQuota:
        return TokenQuota(caller.name, self._counters(caller.digest))

    def authenticate(self, metadata: Sequence[tuple[str, str | bytes]] | None) -> Caller:
        """Return the caller whose token a call carries, as ``authorization: Bearer …``.

        Raises Unauthenticated if the token is missing, unknown or expired.

        The time of this search does not help to guess a token, not even a short one. The search compares two digests
        only if their keyed hashes (those of Python) are equal. The key is random in each process, so a caller cannot
        choose a token whose digest is compared with that of another token.
        """
        if self._callers is None:
            return ANONYMOUS
        header = next((value for key, value in metadata or () if key == "authorization"), "")
        scheme, _, token = str(header).partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("this server requires a token: put it in the URL, as grpc://:TOKEN@host:port")
        matched = self._callers.get(digest_of(token))
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
    """Return whether a pattern matches the name. Only the pattern ``*`` matches the name `ALL_QUEUES`."""
    return ALL_QUEUES in patterns or (name != ALL_QUEUES and any(fnmatchcase(name, pattern) for pattern in patterns))
