"""What one token uses of a process now, and what it may: messages a second, calls that wait, and until when at all."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from tickwheel.errors import LimitExceeded, TickwheelError, Unauthenticated, Unavailable
from tickwheel.service.token_bucket import TokenBucket

# When a place of a call that waits may be free again: nobody knows.
_RETRY_AFTER_MS: Final = 1_000


class ConcurrencyLimit:
    """Calls that may wait at once. ``whose`` says for whom, in the refusal."""

    def __init__(self, limit: int | None, holder: str) -> None:
        self.limit = limit
        self.in_use = 0
        self._holder = holder

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """One of them, as long as this lasts. Raises LimitExceeded where all are taken."""
        if self.limit is not None and self.in_use >= self.limit:
            raise LimitExceeded(
                f"{self._holder} may have {self.limit:,} calls that wait, and has them all: ask again later, without a"
                " wait, or through another process of the service",
                _RETRY_AFTER_MS,
            )
        self.in_use += 1
        try:
            yield
        finally:
            self.in_use -= 1


class TokenQuota:
    """Of one token, or of anybody where there are none."""

    def __init__(self, name: str) -> None:
        self.wait_limit = ConcurrencyLimit(None, f"token {name!r}")
        self._name = name
        self._bucket: TokenBucket | None = None
        # What the token is allowed now; None where it is no longer good.
        self._rights: object = None
        # What each call would end with.
        self._tracked_calls: dict[asyncio.Timeout, tuple[type[TickwheelError], str]] = {}

    def update_limits(
        self, rights: object, messages_per_second: int | None, burst: int | None, waiting: int | None
    ) -> None:
        """What the tokens' file says now. What was used before counts on; calls that wait under other rights end, to be
        made again under these.
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
            self._bucket = TokenBucket(messages_per_second, burst, time.monotonic())
        else:
            self._bucket.rate, self._bucket.burst = messages_per_second, burst

    def take(self, count: int) -> None:
        """Count a call of so many messages. Raises LimitExceeded, with when it may come again."""
        seconds = self._wait_s(count)
        if seconds and self._bucket is not None:
            raise LimitExceeded(
                f"token {self._name!r} may have {self._bucket.rate:g} messages a second, and has used them: nothing was"
                f" done; again in {seconds:.3f} s",
                max(round(1_000 * seconds), 1),
            )

    async def wait_and_take(self, count: int) -> None:
        """Count part of a stream: it waits until it may go on, and so does who sends it."""
        while seconds := self._wait_s(count):
            await asyncio.sleep(seconds)

    @asynccontextmanager
    async def track_call(self, rights: object, expires_in_s: float | None) -> AsyncIterator[None]:
        """A call that came under these rights, as long as its token has them and is good.

        Raises in the middle of it where that ends: Unauthenticated, or Unavailable where it may be made again.
        """
        if rights != self._rights:
            # Since it came.
            kind, text = self._revoked_error if self._rights is None else self._changed_error
            raise kind(text)
        now = asyncio.get_running_loop().time()
        limit = asyncio.timeout_at(None if expires_in_s is None else now + expires_in_s)
        self._tracked_calls[limit] = Unauthenticated, f"token {self._name!r} has expired"
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
        """The token is no longer good: its calls that wait end now."""
        self._rights = None
        self._end_calls(*self._revoked_error)

    @property
    def _revoked_error(self) -> tuple[type[TickwheelError], str]:
        return Unauthenticated, f"token {self._name!r} is no longer good"

    @property
    def _changed_error(self) -> tuple[type[TickwheelError], str]:
        return Unavailable, f"the rights of token {self._name!r} have changed: call again"

    def _end_calls(self, kind: type[TickwheelError], text: str) -> None:
        for limit in self._tracked_calls:
            if not limit.expired():
                self._tracked_calls[limit] = kind, text
                limit.reschedule(asyncio.get_running_loop().time())

    def _wait_s(self, count: int) -> float:
        return 0.0 if self._bucket is None else self._bucket.take(count, time.monotonic())
