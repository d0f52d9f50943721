"""The attempts of one RPC: the time limit of each attempt, and the meaning of its failure. No I/O."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

import grpc

from tickwheel.client.grpc.handshake_probe import HandshakeProbe
from tickwheel.errors import LimitExceeded, NamespaceNotFound, TickwheelError, Unavailable
from tickwheel.operations.context import namespace_gone_error
from tickwheel.plan import Effects, RpcCall
from tickwheel.redis.retry_budget import RetryBudget, log
from tickwheel.redis.url import first_node_only
from tickwheel.rpc.methods import METHODS
from tickwheel.rpc.status import error_from_status
from tickwheel.runtime.backoff import exponential, full_jitter
from tickwheel.runtime.log_throttle import LogThrottle

# Status codes after which the same call may be sent again. They come from the service, or from a proxy in between.
_RETRYABLE: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

# Error texts of the grpc library if there was no connection. After any other error, the call may have been sent.
_NOT_SENT: Final = ("failed to connect to all addresses", "DNS resolution failed")

# The service's grpc library returns this error text if too many calls are in flight. The client then waits for this
# time before the next attempt.
_TOO_MANY: Final = "Concurrent RPC limit exceeded"
_TOO_MANY_MS: Final = 1_000

# The minimum time limit of an attempt.
_MIN_ATTEMPT_S: Final = 0.01


class AttemptFailed(Exception):
    """An attempt failed and may be repeated."""


class UnknownMethod(TickwheelError):
    """The service does not offer the method: its version is older than that of the client."""


@dataclass(slots=True)
class OpenedNamespace:
    """Whether the client has opened its namespace. If the namespace is missing afterwards, it is gone."""

    is_known: bool = False


@dataclass(slots=True)
class CallRetry:
    """The attempts of one call.

    The call is retried for ``seconds``. A dequeue with a wait is retried until ``seconds`` after the end of the wait.
    ``effects`` are those of the earlier RPCs of the same call of the client. ``opened`` is shared by all calls of the
    client. ``is_stopped`` ends the retries (`RetryBudget`).
    """

    call: RpcCall
    display_url: str
    seconds: float
    log_throttle: LogThrottle
    handshake: HandshakeProbe
    effects: Effects
    opened: OpenedNamespace
    is_stopped: Callable[[], bool] | None = None
    _attempts: RetryBudget = field(init=False)
    _until: float = field(init=False)
    _sent: bool = False
    _refusals: int = 0

    def __post_init__(self) -> None:
        now = time.monotonic()
        seconds = self.seconds + (0 if self.call.until is None else max(self.call.until - now, 0))
        self._until = now + seconds
        self._attempts = RetryBudget(self.display_url, seconds, self.log_throttle, self.is_stopped)

    @property
    def path(self) -> str:
        return METHODS[self.call.method].path

    def attempt_s(self) -> float:
        """Return the time limit of the next attempt. Shortens the wait of a dequeue to the time that remains of it."""
        now = time.monotonic()
        if self.call.until is not None:
            self.call.request.wait_ms = round(1000 * max(self.call.until - now, 0))
        return max(self._until - now, _MIN_ATTEMPT_S)

    def backoff_or_raise(self, failed: Any) -> float:
        """Return the seconds to wait before the next attempt.

        Raises the error with which the service refused the call, Unavailable if the time is up, and other errors if a
        retry cannot help.
        """
        if self.call.method == "Dequeue":
            self.call.request.first_attempt = False
        error = error_from_status(failed)
        if isinstance(error, Unavailable):
            # The service has used up its own timeout for the call. This client's timeout may be longer.
            self._sent = self._sent or error.may_have_happened
            return self._attempts.backoff_or_raise(error, self._sent or self.effects.applied)
        code, details = failed.code(), failed.details()
        if error is None and code is grpc.StatusCode.RESOURCE_EXHAUSTED and str(details).startswith(_TOO_MANY):
            error = LimitExceeded(f"{self.display_url} has too many calls in flight: {details}", _TOO_MANY_MS)
        if isinstance(error, LimitExceeded):
            return self._postpone(error)
        if error is not None:
            raise self._as_known(error) from None
        if code not in _RETRYABLE:
            raise foreign_status_error(self.display_url, code, details) from None
        permanent_error = self.handshake.permanent_error(str(details))
        if permanent_error is not None and not self._sent:
            raise permanent_error from None
        self._sent = self._sent or not str(details).startswith(_NOT_SENT)
        failure = AttemptFailed(f"{code.name}: {details}")
        return self._attempts.backoff_or_raise(failure, self._sent or self.effects.applied)

    def on_cancelled(self) -> None:
        """Raise Unavailable if the attempt was cancelled because the call was stopped, and cannot have leased messages.

        Otherwise, the next attempt asks for the answer of this one.
        """
        if self.is_stopped is not None and self.is_stopped():
            if self.call.method == "Dequeue":
                self.call.request.first_attempt = False
            failure = AttemptFailed("cancelled, because its caller has stopped")
            self._attempts.backoff_or_raise(failure, sent=METHODS[self.call.method].may_change_data)

    def raise_if_stopped(self) -> None:
        """Raise Unavailable if the call was stopped during the wait after a failed attempt."""
        self._attempts.raise_if_stopped()

    def should_probe(self, failed: Any) -> bool:
        """Return whether `HandshakeProbe.probe_tls` could find out why the attempt failed."""
        return not self._sent and self.handshake.should_probe(str(failed.details()))

    def record_success(self) -> None:
        self.effects.applied = self.effects.applied or METHODS[self.call.method].may_change_data
        self._attempts.on_answer()
        if self.call.method == "OpenNamespace":
            self.opened.is_known = True
        self.handshake.record_success()

    def _as_known(self, error: TickwheelError) -> TickwheelError:
        """Return ``error``, or NamespaceGone if the namespace is missing that the client has opened before.

        The service forgets a namespace that is gone, and this client does not.
        """
        keeps_open = self.call.method not in ("OpenNamespace", "DeleteNamespace")
        if keeps_open and self.opened.is_known and isinstance(error, NamespaceNotFound):
            return namespace_gone_error(self.call.request.namespace)
        return error

    def _postpone(self, error: LimitExceeded) -> float:
        """Return the seconds to wait before a throttled call is sent again. Raises the error if the time is up by then,
        or if the call was stopped.

        The wait has an exponential, random part, so that many throttled calls are not sent again at the same time.
        """
        self._refusals += 1
        pause = error.retry_after_ms / 1000 + full_jitter(exponential(0.02, 1.0, self._refusals))
        is_stopped = self.is_stopped is not None and self.is_stopped()
        if is_stopped or time.monotonic() + pause >= self._until:
            raise error from None
        level = self.log_throttle.level(f"throttled: {error}")
        short_url, pause_ms = first_node_only(self.display_url), ceil(1_000 * pause)
        log.log(level, "throttled by %s: %s; retrying in %d ms", short_url, error, pause_ms)
        return pause


def foreign_status_error(display_url: str, code: grpc.StatusCode, details: str | None) -> TickwheelError:
    """Return the error for a status that no Tickwheel service returns. Another service or a proxy has returned it."""
    kind = UnknownMethod if code is grpc.StatusCode.UNIMPLEMENTED else TickwheelError
    return kind(
        f"{display_url} returned the status {code.name}: {details}; check that the url leads to a Tickwheel service,"
        " whose version is not earlier than that of this client"
    )


def not_supported_error(display_url: str) -> TickwheelError:
    """Return the error for a plan that the service cannot run, because the plan accesses keys of Redis directly."""
    return TickwheelError(
        f"{display_url} is a gRPC service, which does not offer this operation: use the url of the Redis or Valkey"
        " server"
    )
