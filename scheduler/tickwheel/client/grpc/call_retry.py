"""One call of the service, until it is answered: how long an attempt may take, and what its failure means. No I/O."""

import time
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from tickwheel.client.grpc.handshake_probe import HandshakeProbe
from tickwheel.errors import LimitExceeded, TickwheelError, Unavailable
from tickwheel.plan import RpcCall
from tickwheel.redis.retry_budget import RetryBudget, log
from tickwheel.redis.url import first_node_only
from tickwheel.rpc.methods import METHODS
from tickwheel.rpc.status import error_from_status
from tickwheel.runtime.backoff import exponential, full_jitter
from tickwheel.runtime.log_throttle import LogThrottle

# What a server, or what stands before it, says of a call that may be sent again as it is: it did not come through.
_RETRYABLE: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

# What the client library says where there was no connection to send anything on. Whatever else it says, the call may
# have been sent.
_NOT_SENT: Final = ("failed to connect to all addresses", "DNS resolution failed")

# What the server's library says where more calls are under way than it takes, and after how long it is asked again.
_TOO_MANY: Final = "Concurrent RPC limit exceeded"
_TOO_MANY_MS: Final = 1_000

# An attempt that is made has this long at least.
_MIN_ATTEMPT_S: Final = 0.01


class AttemptFailed(Exception):
    """An attempt that came to nothing; the text says why."""


@dataclass(slots=True)
class CallRetry:
    """The attempts of one call. ``seconds`` is how long it is tried beyond what it waits for by itself."""

    call: RpcCall
    display_url: str
    seconds: float
    log_throttle: LogThrottle
    handshake: HandshakeProbe
    _attempts: RetryBudget = field(init=False)
    _until: float = field(init=False)
    _sent: bool = False
    _refusals: int = 0

    def __post_init__(self) -> None:
        now = time.monotonic()
        seconds = self.seconds + (0 if self.call.until is None else max(self.call.until - now, 0))
        self._until = now + seconds
        self._attempts = RetryBudget(self.display_url, seconds, self.log_throttle)

    @property
    def path(self) -> str:
        return METHODS[self.call.method].path

    def attempt_s(self) -> float:
        """How long the next attempt may take. One that waits is shortened to what is left of its time."""
        now = time.monotonic()
        if self.call.until is not None:
            self.call.request.wait_ms = round(1000 * max(self.call.until - now, 0))
        return max(self._until - now, _MIN_ATTEMPT_S)

    def backoff_or_raise(self, failed: Any) -> float:
        """Seconds before the next attempt. Raises what the service refused the call with, or Unavailable at the end."""
        if self.call.method == "Dequeue":
            self.call.request.first_attempt = False
        error = error_from_status(failed)
        if isinstance(error, Unavailable):
            # The server has tried for as long as it does, and this client's time is its own.
            self._sent = self._sent or error.may_have_happened
            return self._attempts.backoff_or_raise(error, self._sent)
        code, details = failed.code(), failed.details()
        if error is None and code is grpc.StatusCode.RESOURCE_EXHAUSTED and str(details).startswith(_TOO_MANY):
            error = LimitExceeded(f"{self.display_url} has all the calls that it takes: {details}", _TOO_MANY_MS)
        if isinstance(error, LimitExceeded):
            return self._postpone(error)
        if error is not None:
            raise error from None
        if code not in _RETRYABLE:
            raise foreign_status_error(self.display_url, code, details) from None
        permanent_error = self.handshake.permanent_error(str(details))
        if permanent_error is not None and not self._sent:
            raise permanent_error from None
        self._sent = self._sent or not str(details).startswith(_NOT_SENT)
        return self._attempts.backoff_or_raise(AttemptFailed(f"{code.name}: {details}"), self._sent)

    def should_probe(self, failed: Any) -> bool:
        """Whether `HandshakeProbe.probe_tls` may tell why the attempt failed."""
        return not self._sent and self.handshake.should_probe(str(failed.details()))

    def record_success(self) -> None:
        self._attempts.on_answer()
        self.handshake.record_success()

    def _postpone(self, error: LimitExceeded) -> float:
        """Seconds until the service may take the call. Raises what it said where that is too late for this one.

        Of many calls that are put off, each comes at a time of its own, and later each time.
        """
        self._refusals += 1
        pause = error.retry_after_ms / 1000 + full_jitter(exponential(0.02, 1.0, self._refusals))
        if time.monotonic() + pause >= self._until:
            raise error from None
        level = self.log_throttle.level(f"put off: {error}")
        log.log(level, "put off by %s: %s; again in %.3f s", first_node_only(self.display_url), error, pause)
        return pause


def foreign_status_error(display_url: str, code: grpc.StatusCode, details: str | None) -> TickwheelError:
    """The error of a status that this product does not give: another service is there, or something in between."""
    return TickwheelError(f"{display_url} answers {code.name}: {details}")


def not_supported_error(display_url: str) -> TickwheelError:
    """The error of what is no operation of the service: it looks at keys, or deletes them."""
    return TickwheelError(
        f"{display_url} does not do that for its clients: it needs the url of the server that keeps messages"
    )
