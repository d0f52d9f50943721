"""Runs plans of RPCs on a blocking channel, for any thread."""

import threading
from typing import Any, TypeVar

import grpc

from tickwheel import tracing
from tickwheel.client.grpc.call_retry import CallRetry, not_supported_error
from tickwheel.client.grpc.handshake_probe import HandshakeProbe
from tickwheel.plan import Plan, PlanRun, RpcCall
from tickwheel.rpc.methods import METHODS
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.process_guard import ProcessGuard

T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]


class GrpcExecutor:
    """Runs plans on one channel. Thread-safe."""

    def __init__(
        self,
        channel: grpc.Channel,
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
        self._calls = {
            method.path: channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            for method in METHODS.values()
            if not (method.client_streaming or method.server_streaming)
        }
        self._in_flight: set[Any] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def run(self, plan: Plan[T]) -> T:
        """Run a plan and return its result."""
        plan_run = PlanRun(plan)
        while (step := plan_run.next_step()) is not None:
            try:
                if not isinstance(step, RpcCall):
                    raise not_supported_error(self._display_url)
                plan_run.answer = self._call(step)
            except BaseException as raised:
                plan_run.error = raised
        return plan_run.result

    def _call(self, step: RpcCall) -> Any:
        retry = CallRetry(step, self._display_url, self._seconds, self._log_throttle, self._handshake)
        self._process_guard.check()
        while True:
            call = self._calls[retry.path].future(
                step.request, timeout=retry.attempt_s(), metadata=self._metadata + tracing.carried()
            )
            with self._lock:
                self._in_flight.add(call)
            try:
                if self._closing.is_set():
                    call.cancel()
                answer = call.result()
                retry.record_success()
                return answer
            except grpc.FutureCancelledError:
                pause = 0.0
            except grpc.RpcError as failed:
                if retry.should_probe(failed) and (permanent_error := self._handshake.probe_tls()):
                    raise permanent_error from None
                pause = retry.backoff_or_raise(failed)
            finally:
                call.cancel()
                with self._lock:
                    self._in_flight.discard(call)
            self._closing.wait(pause)
            self._process_guard.check(sent=True)

    def close(self) -> None:
        """Close the channel and end every call."""
        self._process_guard.close()
        if not self._process_guard.owned_by_this_process:
            return
        self._closing.set()
        with self._lock:
            calls = list(self._in_flight)
        for call in calls:
            call.cancel()
        self._channel.close()
