"""The common part of both executors: the calls of one channel, and the state that their retries share."""

from collections.abc import Callable
from typing import Any

from tickwheel.client.grpc.call_retry import CallRetry, OpenedNamespace, not_supported_error
from tickwheel.client.grpc.handshake_probe import HandshakeProbe
from tickwheel.plan import Effects, RpcCall, Step
from tickwheel.rpc.methods import METHODS
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.process_guard import ProcessGuard

Metadata = tuple[tuple[str, str], ...]


class ChannelCalls:
    """The calls of one channel, of `grpc` or of `grpc.aio`."""

    def __init__(
        self,
        channel: Any,
        display_url: str,
        seconds: float,
        handshake: HandshakeProbe,
        metadata: Metadata = (),
    ) -> None:
        """``seconds`` is how long a call is retried. Every call carries ``metadata``."""
        self._channel = channel
        self._display_url = display_url
        self._seconds = seconds
        self._metadata = metadata
        self._handshake = handshake
        self._process_guard = ProcessGuard(display_url)
        self._log_throttle = LogThrottle()
        self._opened = OpenedNamespace()
        self._calls = {
            method.path: channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            for method in METHODS.values()
            if not (method.client_streaming or method.server_streaming)
        }

    @property
    def owned_by_this_process(self) -> bool:
        """Whether this process created the executor. It is False in a process that was forked afterwards."""
        return self._process_guard.owned_by_this_process

    def _begin_call(
        self, step: Step, effects: Effects, timeout_s: float | None, is_stopped: Callable[[], bool] | None
    ) -> CallRetry:
        """Return the CallRetry of a call. Raises TickwheelError if the step is not a call, or the client is closed."""
        if not isinstance(step, RpcCall):
            raise not_supported_error(self._display_url)
        seconds = self._seconds if timeout_s is None else timeout_s
        shared = self._log_throttle, self._handshake, effects, self._opened
        retry = CallRetry(step, self._display_url, seconds, *shared, is_stopped)
        self._process_guard.check(effects.applied)
        return retry
