"""One call of the service, until it is answered: how long an attempt may take, and what its failure means. No I/O."""

import time
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from tickwheel.errors import TickwheelError, Unavailable
from tickwheel.plan import Ask
from tickwheel.remote.methods import METHODS
from tickwheel.remote.status import error_of
from tickwheel.seldom import Seldom
from tickwheel.transport import Attempts

# What a server, or what stands before it, says of a call that may be sent again as it is: it did not come through.
_AGAIN: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

# What the client library says where there was no connection to send anything on. Whatever else it says, the call may
# have been sent.
_NOT_SENT: Final = ("failed to connect to all addresses", "DNS resolution failed")

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
    _attempts: Attempts = field(init=False)
    _until: float = field(init=False)
    _sent: bool = False

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
        refused = error_of(failed)
        if isinstance(refused, Unavailable):
            # The server has tried for as long as it does, and this client's time is its own.
            self._sent = self._sent or refused.may_have_happened
            return self._attempts.pause(refused, self._sent)
        if refused is not None:
            raise refused from None
        code, said = failed.code(), failed.details()
        if code not in _AGAIN:
            raise not_of_the_service(self.where, code, said) from None
        self._sent = self._sent or not str(said).startswith(_NOT_SENT)
        return self._attempts.pause(NotAnswered(f"{code.name}: {said}"), self._sent)

    def answered(self) -> None:
        self._attempts.answered()


def not_of_the_service(where: str, code: grpc.StatusCode, said: str | None) -> TickwheelError:
    """The error of a status that this product does not give: another service is there, or something in between."""
    return TickwheelError(f"{where} answers {code.name}: {said}")


def of_the_server_itself(where: str) -> TickwheelError:
    """The error of what is no operation of the service: it looks at keys, or deletes them."""
    return TickwheelError(
        f"{where} does not do that for its clients: it needs the url of the server that keeps messages"
    )
