"""What one token uses of a process now, and what it may: messages a second, calls that wait, and until when at all."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from tickwheel.errors import LimitExceeded, TickwheelError, Unauthenticated, Unavailable
from tickwheel.service.token_bucket import TokenBucket

# When a place of a call that waits may be free again: nobody knows.
_PLACE_AGAIN_MS: Final = 1_000


class Places:
    """Calls that may wait at once. ``whose`` says for whom, in the refusal."""

    def __init__(self, most: int | None, whose: str) -> None:
        self.most = most
        self.taken = 0
        self._whose = whose

    @contextmanager
    def one(self) -> Iterator[None]:
        """One of them, as long as this lasts. Raises LimitExceeded where all are taken."""
        if self.most is not None and self.taken >= self.most:
            raise LimitExceeded(
                f"{self._whose} may have {self.most:,} calls that wait, and has them all: ask again later, without a"
                " wait, or through another process of the service",
                _PLACE_AGAIN_MS,
            )
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


class Usage:
    """Of one token, or of anybody where there are none."""

    def __init__(self, name: str) -> None:
        self.places = Places(None, f"token {name!r}")
        self._name = name
        self._bucket: TokenBucket | None = None
        # What the token is allowed now; None where it is no longer good.
        self._rights: object = None
        # What each call would end with.
        self._under_way: dict[asyncio.Timeout, tuple[type[TickwheelError], str]] = {}

    def allow(self, rights: object, messages_per_second: int | None, burst: int | None, waiting: int | None) -> None:
        """What the tokens' file says now. What was used before counts on; calls that wait under other rights end, to be
        made again under these.
        """
        if self._rights != rights:
            self._rights = rights
            self._end(*self._changed)
        self.places.most = waiting
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

    async def take_in_turn(self, count: int) -> None:
        """Count part of a stream: it waits until it may go on, and so does who sends it."""
        while seconds := self._wait_s(count):
            await asyncio.sleep(seconds)

    @asynccontextmanager
    async def under_way(self, rights: object, expires_in_s: float | None) -> AsyncIterator[None]:
        """A call that came under these rights, as long as its token has them and is good.

        Raises in the middle of it where that ends: Unauthenticated, or Unavailable where it may be made again.
        """
        if rights != self._rights:
            # Since it came.
            kind, text = self._gone if self._rights is None else self._changed
            raise kind(text)
        now = asyncio.get_running_loop().time()
        limit = asyncio.timeout_at(None if expires_in_s is None else now + expires_in_s)
        self._under_way[limit] = Unauthenticated, f"token {self._name!r} has expired"
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            kind, text = self._under_way[limit]
            raise kind(text) from error
        finally:
            del self._under_way[limit]

    def withdraw(self) -> None:
        """The token is no longer good: its calls that wait end now."""
        self._rights = None
        self._end(*self._gone)

    @property
    def _gone(self) -> tuple[type[TickwheelError], str]:
        return Unauthenticated, f"token {self._name!r} is no longer good"

    @property
    def _changed(self) -> tuple[type[TickwheelError], str]:
        return Unavailable, f"the rights of token {self._name!r} have changed: call again"

    def _end(self, kind: type[TickwheelError], text: str) -> None:
        for limit in self._under_way:
            if not limit.expired():
                self._under_way[limit] = kind, text
                limit.reschedule(asyncio.get_running_loop().time())

    def _wait_s(self, count: int) -> float:
        return 0.0 if self._bucket is None else self._bucket.take(count, time.monotonic())
