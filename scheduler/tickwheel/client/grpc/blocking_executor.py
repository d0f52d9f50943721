"""Plans of calls of the service carried out on a blocking channel, by any threads."""

import threading
from typing import Any, TypeVar

import grpc

from tickwheel import tracing
from tickwheel.client.grpc.call_retry import Calling, of_the_server_itself
from tickwheel.client.grpc.handshake_probe import Handshake
from tickwheel.plan import Ask, Plan
from tickwheel.rpc.methods import METHODS
from tickwheel.runtime.log_throttle import Seldom
from tickwheel.runtime.process_guard import Gate

T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]


class BlockingChannelIO:
    """Runs plans on one channel."""

    def __init__(
        self, channel: grpc.Channel, where: str, seconds: float, handshake: Handshake, metadata: Metadata = ()
    ) -> None:
        """``seconds`` is how long a call is tried; ``metadata`` goes with each."""
        self._channel = channel
        self._where = where
        self._seconds = seconds
        self._metadata = metadata
        self._handshake = handshake
        self._gate = Gate(where)
        self._seldom = Seldom()
        self._calls = {
            method.path: channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            for method in METHODS.values()
            if not (method.asks_many or method.answers_many)
        }
        self._under_way: set[Any] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def run(self, plan: Plan[T]) -> T:
        """Carry a plan out, step by step."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = plan.send(answer) if error is None else plan.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = error = None
            try:
                if not isinstance(step, Ask):
                    raise of_the_server_itself(self._where)
                answer = self._ask(step)
            except BaseException as raised:
                error = raised

    def _ask(self, step: Ask) -> Any:
        calling = Calling(step, self._where, self._seconds, self._seldom, self._handshake)
        self._gate.check()
        while True:
            under_way = self._calls[calling.path].future(
                step.request, timeout=calling.attempt_s(), metadata=self._metadata + tracing.carried()
            )
            with self._lock:
                self._under_way.add(under_way)
            try:
                if self._closing.is_set():
                    under_way.cancel()
                answer = under_way.result()
                calling.answered()
                return answer
            except grpc.FutureCancelledError:
                pause = 0.0
            except grpc.RpcError as failed:
                if calling.is_to_ask(failed) and (for_good := self._handshake.ask()):
                    raise for_good from None
                pause = calling.pause(failed)
            finally:
                under_way.cancel()
                with self._lock:
                    self._under_way.discard(under_way)
            self._closing.wait(pause)
            self._gate.check(sent=True)

    def close(self) -> None:
        """Close the channel, and end every call."""
        self._gate.close()
        if not self._gate.is_ours:
            return
        self._closing.set()
        with self._lock:
            under_way = list(self._under_way)
        for each in under_way:
            each.cancel()
        self._channel.close()
