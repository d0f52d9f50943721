"""One call of the service, until it is answered: how long an attempt may take, and what its failure means. No I/O."""

import random
import time
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from tickwheel.client.grpc.handshake_probe import Handshake
from tickwheel.errors import LimitExceeded, TickwheelError, Unavailable
from tickwheel.plan import Ask
from tickwheel.redis import url as urls
from tickwheel.redis.replies import Attempts, log
from tickwheel.rpc.methods import METHODS
from tickwheel.rpc.status import error_of
from tickwheel.runtime.log_throttle import Seldom

# What a server, or what stands before it, says of a call that may be sent again as it is: it did not come through.
_AGAIN: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

# What the client library says where there was no connection to send anything on. Whatever else it says, the call may
# have been sent.
_NOT_SENT: Final = ("failed to connect to all addresses", "DNS resolution failed")

# What the server's library says where more calls are under way than it takes, and after how long it is asked again.
_TOO_MANY: Final = "Concurrent RPC limit exceeded"
_TOO_MANY_MS: Final = 1_000

# An attempt that is made has this long at least.
_LEAST_S: Final = 0.01


class NotAnswered(Exception):
    """An attempt that came to nothing; the text says why."""


@dataclass(slots=True)
class Calling:
    """The attempts of one call. ``seconds`` is how long it is tried beyond what it waits for by itself."""

    asked: Ask
    where: str
    seconds: float
    seldom: Seldom
    handshake: Handshake
    _attempts: Attempts = field(init=False)
    _until: float = field(init=False)
    _sent: bool = False
    _refusals: int = 0

    def __post_init__(self) -> None:
        now = time.monotonic()
        seconds = self.seconds + (0 if self.asked.until is None else max(self.asked.until - now, 0))
        self._until = now + seconds
        self._attempts = Attempts(self.where, seconds, self.seldom)

    @property
    def path(self) -> str:
        return METHODS[self.asked.method].path

    def attempt_s(self) -> float:
        """How long the next attempt may take. One that waits is shortened to what is left of its time."""
        now = time.monotonic()
        if self.asked.until is not None:
            self.asked.request.wait_ms = round(1000 * max(self.asked.until - now, 0))
        return max(self._until - now, _LEAST_S)

    def pause(self, failed: Any) -> float:
        """Seconds before the next attempt. Raises what the service refused the call with, or Unavailable at the end."""
        if self.asked.method == "Dequeue":
            self.asked.request.first_attempt = False
        refused = error_of(failed)
        if isinstance(refused, Unavailable):
            # The server has tried for as long as it does, and this client's time is its own.
            self._sent = self._sent or refused.may_have_happened
            return self._attempts.pause(refused, self._sent)
        code, said = failed.code(), failed.details()
        if refused is None and code is grpc.StatusCode.RESOURCE_EXHAUSTED and str(said).startswith(_TOO_MANY):
            refused = LimitExceeded(f"{self.where} has all the calls that it takes: {said}", _TOO_MANY_MS)
        if isinstance(refused, LimitExceeded):
            return self._put_off(refused)
        if refused is not None:
            raise refused from None
        if code not in _AGAIN:
            raise not_of_the_service(self.where, code, said) from None
        for_good = self.handshake.failed(str(said))
        if for_good is not None and not self._sent:
            raise for_good from None
        self._sent = self._sent or not str(said).startswith(_NOT_SENT)
        return self._attempts.pause(NotAnswered(f"{code.name}: {said}"), self._sent)

    def is_to_ask(self, failed: Any) -> bool:
        """Whether `Handshake.ask` may tell why the attempt failed."""
        return not self._sent and self.handshake.is_to_ask(str(failed.details()))

    def answered(self) -> None:
        self._attempts.answered()
        self.handshake.answered()

    def _put_off(self, refused: LimitExceeded) -> float:
        """Seconds until the service may take the call. Raises what it said where that is too late for this one.

        Of many calls that are put off, each comes at a time of its own, and later each time.
        """
        self._refusals += 1
        pause = refused.retry_after_ms / 1000 + random.uniform(0, min(1.0, 0.01 * 2 ** min(self._refusals, 10)))
        if time.monotonic() + pause >= self._until:
            raise refused from None
        level = self.seldom.level(f"put off: {refused}")
        log.log(level, "put off by %s: %s; again in %.3f s", urls.abridged(self.where), refused, pause)
        return pause


def not_of_the_service(where: str, code: grpc.StatusCode, said: str | None) -> TickwheelError:
    """The error of a status that this product does not give: another service is there, or something in between."""
    return TickwheelError(f"{where} answers {code.name}: {said}")


def of_the_server_itself(where: str) -> TickwheelError:
    """The error of what is no operation of the service: it looks at keys, or deletes them."""
    return TickwheelError(
        f"{where} does not do that for its clients: it needs the url of the server that keeps messages"
    )
