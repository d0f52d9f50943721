"""Quotas of one token: message rate, concurrent waiting calls, expiry. The counters are those of one process, or those
of all processes of a service (`shared_quota`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import inf
from typing import Final

from tickwheel.errors import LimitExceeded, TickwheelError, Unauthenticated, Unavailable

# The pause before a retry, for a client that exceeds a limit of calls or of their bytes. It is a guess: the time at
# which another call ends is unknown.
RETRY_AFTER_MS: Final = 1_000
_LOOK_AGAIN_S: Final = 1.0


class TokenBucket:
    """A bucket that fills with ``rate`` messages a second, up to ``burst``. A call passes if the level is above zero,
    even if the call takes more messages than the bucket contains.

    So a batch may be larger than the burst. Later calls then wait until the level is above zero again. The number of
    messages that pass in a period is at most ``burst``, plus one batch, plus ``rate`` for each second of the period.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._level = burst
        self._updated_at = now

    def take(self, count: int, now: float, *, always: bool = False) -> float:
        """Take ``count`` messages and return 0 if the call passes. Otherwise take nothing, and return the number of
        seconds after which the call may be retried. With ``always``, the call passes.
        """
        self._level = min(self.burst, self._level + (now - self._updated_at) * self.rate)
        self._updated_at = now
        if count and self._level <= 0 and not always:
            # Wait until at least a thousandth of a message is refilled. Otherwise, rounding could reject a retry.
            return max(-self._level, 1e-3) / self.rate
        self._level -= count
        return 0.0


class ConcurrencyLimit:
    """Limits the number of concurrent waiting calls. None means no limit. Error texts name ``holder`` as the owner."""

    def __init__(self, limit: int | None, holder: str) -> None:
        self.limit = limit
        self.in_use = 0
        self._holder = holder

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Hold one permit in the ``with`` block. Raises LimitExceeded if no permit is free."""
        self.check(self.in_use)
        self.in_use += 1
        try:
            yield
        finally:
            self.in_use -= 1

    def check(self, in_use: int) -> None:
        """Raise LimitExceeded if ``in_use`` permits are all permits."""
        if self.limit is not None and in_use >= self.limit:
            raise LimitExceeded(
                f"{self._holder} has reached its limit of {self.limit:,} waiting calls: retry later, or do not wait for"
                " messages, or use another process of the service",
                RETRY_AFTER_MS,
            )


class LocalCounters:
    """The counters of one token in one process."""

    def make_bucket(self, rate: float, burst: float, now: float) -> TokenBucket:
        return TokenBucket(rate, burst, now)

    def make_wait_limit(self, holder: str) -> ConcurrencyLimit:
        return ConcurrencyLimit(None, holder)


class TokenQuota:
    """The quota of one token, or the common quota of all callers if the service has no tokens."""

    def __init__(self, name: str, counters: LocalCounters | None = None) -> None:
        self._counters = LocalCounters() if counters is None else counters
        self.wait_limit = self._counters.make_wait_limit(f"token {name!r}")
        self._name = name
        self._bucket: TokenBucket | None = None
        # The current rights of the token; None if it was removed.
        self._rights: object = None
        # For each tracked call, the error with which the call ends if it is interrupted.
        self._tracked_calls: dict[asyncio.Timeout, tuple[type[TickwheelError], str]] = {}

    def update_limits(
        self, rights: object, messages_per_second: int | None, burst: int | None, waiting: int | None
    ) -> None:
        """Apply the rights and limits of the current token file. Past use still counts.

        If the rights changed, tracked calls end with an error that makes clients call again under the new rights.
        """
        if self._rights != rights:
            self._rights = rights
            self._end_calls(*self._changed_error)
        self.wait_limit.limit = waiting
        if messages_per_second is None:
            self._bucket = None
            return
        burst = messages_per_second if burst is None else burst
        if self._bucket is None:
            self._bucket = self._counters.make_bucket(messages_per_second, burst, time.monotonic())
        else:
            self._bucket.rate, self._bucket.burst = messages_per_second, burst

    def take(self, count: int) -> None:
        """Charge a call for ``count`` messages. Raises LimitExceeded with the time after which a retry may pass."""
        seconds = self._wait_s(count, time.monotonic())
        if seconds and self._bucket is not None:
            raise LimitExceeded(
                f"token {self._name!r} has reached its limit of {self._bucket.rate:g} messages a second: the call had"
                f" no effect; retry in {seconds:.3f} s",
                max(round(1_000 * seconds), 1),
            )

    def charge(self, count: int) -> None:
        """Charge a call that has ended for ``count`` messages, also over the rate: later calls of the token wait."""
        if self._bucket is not None:
            self._bucket.take(count, time.monotonic(), always=True)

    async def wait_and_take(self, count: int, longest_s: float = inf) -> None:
        """Charge ``count`` messages. Wait while the token is over its rate, but at most ``longest_s``.

        For a request of a stream: flow control then slows the client down.
        """
        until = time.monotonic() + longest_s
        while seconds := self._wait_s(count, now := time.monotonic()):
            if now >= until:
                self.charge(count)
                return
            # The limits of the token may change meanwhile.
            await asyncio.sleep(min(seconds, until - now, _LOOK_AGAIN_S))

    @asynccontextmanager
    async def track_call(self, rights: object, expires_in_s: float | None) -> AsyncIterator[None]:
        """Run a call in the ``with`` block. Interrupt the block if the token becomes invalid or its rights change.

        Raises Unauthenticated if the token expires or is removed. Raises Unavailable if the token's rights change: the
        client can then repeat the call.
        """
        if rights != self._rights:
            # The token file was reloaded after the call was authenticated.
            kind, text = self._revoked_error if self._rights is None else self._changed_error
            raise kind(text)
        if expires_in_s is not None and expires_in_s <= 0:
            raise Unauthenticated(self._expired_text)
        now = asyncio.get_running_loop().time()
        limit = asyncio.timeout_at(None if expires_in_s is None else now + expires_in_s)
        self._tracked_calls[limit] = Unauthenticated, self._expired_text
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            kind, text = self._tracked_calls[limit]
            raise kind(text) from error
        finally:
            del self._tracked_calls[limit]

    def revoke(self) -> None:
        """End the tracked calls of the token, which was removed from the token file."""
        self._rights = None
        self._end_calls(*self._revoked_error)

    @property
    def _revoked_error(self) -> tuple[type[TickwheelError], str]:
        return Unauthenticated, f"token {self._name!r} is no longer valid"

    @property
    def _expired_text(self) -> str:
        return f"token {self._name!r} has expired"

    @property
    def _changed_error(self) -> tuple[type[TickwheelError], str]:
        return Unavailable, f"the rights of token {self._name!r} have changed: call again"

    def _end_calls(self, kind: type[TickwheelError], text: str) -> None:
        for limit in self._tracked_calls:
            if not limit.expired():
                self._tracked_calls[limit] = kind, text
                limit.reschedule(asyncio.get_running_loop().time())

    def _wait_s(self, count: int, now: float) -> float:
        return 0.0 if self._bucket is None else self._bucket.take(count, now)
