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
        # What each call would end with.
        self._under_way: dict[asyncio.Timeout, tuple[type[TickwheelError], str]] = {}

    def allow(self, messages_per_second: int | None, burst: int | None, waiting: int | None) -> None:
        """What the tokens' file says now. What was used before counts on."""
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
    async def under_way(self, expires_in_s: float | None) -> AsyncIterator[None]:
        """A call, as long as its token is good; in the middle of it Unauthenticated, or Unavailable, is raised."""
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
        """The token is no longer good: its calls end now."""
        self._end(Unauthenticated, f"token {self._name!r} is no longer good")

    def interrupt(self) -> None:
        """The token's rights have changed: its calls end now, and may be made again under those that it has."""
        self._end(Unavailable, f"the rights of token {self._name!r} have changed: call again")

    def _end(self, kind: type[TickwheelError], text: str) -> None:
        now = asyncio.get_running_loop().time()
        for limit in self._under_way:
            if not limit.expired():
                self._under_way[limit] = kind, text
                limit.reschedule(now)

    def _wait_s(self, count: int) -> float:
        return 0.0 if self._bucket is None else self._bucket.take(count, time.monotonic())
