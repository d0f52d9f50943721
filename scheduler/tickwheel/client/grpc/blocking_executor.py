"""Runs plans of RPCs on a blocking channel, for any thread."""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import grpc

from tickwheel import tracing
from tickwheel.client.grpc.call_retry import CallRetry
from tickwheel.client.grpc.channel_calls import ChannelCalls
from tickwheel.plan import Effects, Pause, Plan, PlanRun, Step
from tickwheel.rpc.methods import METHODS

# How often a call checks whether it was stopped, in seconds, and after how many of these checks its attempt is
# cancelled. A worker waits up to a second for messages, and must not lose those of an answer that is about to arrive. A
# service that waits for its server can need more than 5 s for a call that leases messages.
_STOP_CHECK_S: Final = 0.5
_STOP_CHECKS: Final = 3
_LEASING_STOP_CHECKS: Final = 12

T = TypeVar("T")


class GrpcExecutor(ChannelCalls):
    """Runs plans on one channel. Thread-safe."""

    def __init__(self, *connection: Any) -> None:
        super().__init__(*connection)
        self._in_flight: set[Any] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def run(
        self,
        plan: Plan[T],
        effects: Effects | None = None,
        timeout_s: float | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> T:
        """Run a plan and return its result. ``effects``: those of the call, if the plan is a part of a call.

        ``timeout_s`` replaces the timeout of the client. ``is_stopped`` ends the retries (`RetryBudget`),
        and soon cancels an RPC in progress.
        """
        plan_run = PlanRun(plan, self._display_url)
        effects = effects or Effects()
        while (step := plan_run.next_step()) is not None:
            try:
                plan_run.answer = self._call(step, effects, timeout_s, is_stopped)
            except BaseException as raised:
                plan_run.error = raised
        return plan_run.result

    def _call(
        self, step: Step, effects: Effects, timeout_s: float | None, is_stopped: Callable[[], bool] | None
    ) -> Any:
        if isinstance(step, Pause):
            return self._closing.wait(step.seconds)
        retry = self._begin_call(step, effects, timeout_s, is_stopped)
        while True:
            call = self._calls[retry.path].future(
                retry.call.request, timeout=retry.attempt_s(), metadata=self._metadata + tracing.carried()
            )
            with self._lock:
                self._in_flight.add(call)
            try:
                if self._closing.is_set():
                    call.cancel()
                answer = _await_answer(call, retry)
                retry.record_success()
                return answer
            except grpc.FutureCancelledError:
                retry.on_cancelled()
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
            retry.raise_if_stopped()

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


def _await_answer(call: Any, retry: CallRetry) -> Any:
    """Return the answer of an attempt. Cancel the attempt if its call was stopped and no answer arrives."""
    if retry.is_stopped is None:
        return call.result()
    left = _LEASING_STOP_CHECKS if METHODS[retry.call.method].may_change_data else _STOP_CHECKS
    while True:
        try:
            return call.result(timeout=_STOP_CHECK_S)
        except grpc.FutureTimeoutError:
            left -= retry.is_stopped()
            if left == 0:
                call.cancel()
