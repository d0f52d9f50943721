"""The wait for the messages of several queues over the service, step by step."""

import time
from typing import Any

import pytest

from tickwheel.client.grpc import grpc_message_wait
from tickwheel.client.grpc.call_retry import UnknownMethod
from tickwheel.client.grpc.grpc_message_wait import AwaitSupport, GrpcMessageWait
from tickwheel.plan import Pause, RpcCall
from tickwheel.v1 import message_service_pb2 as calls

pytestmark = pytest.mark.unit


class Service:
    """Answers the calls of a wait. A service without the call is an older one."""

    def __init__(self) -> None:
        self.has_call = True
        self.queues: list[str] = []
        self.calls = 0
        self.pauses: list[float] = []

    def next(self, wait: GrpcMessageWait) -> list[str] | None:
        plan, answer = wait.next(time.monotonic() + 60), None
        try:
            step: Any = plan.send(None)
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    step = plan.send(None)
                    continue
                assert isinstance(step, RpcCall)
                self.calls += 1
                if not self.has_call:
                    step = plan.throw(UnknownMethod("UNIMPLEMENTED"))
                answer = calls.AwaitMessagesResponse(queues=self.queues)
                step = plan.send(answer)
        except StopIteration as ended:
            result: list[str] | None = ended.value
            return result


def test_a_service_without_the_call_is_asked_again_after_a_minute_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service, support = Service(), AwaitSupport()
    service.has_call = False
    for _ in range(2):
        assert service.next(GrpcMessageWait("ns", ["red"], support)) is None
    assert service.calls == 1

    now = time.monotonic() + grpc_message_wait._MISSING_S
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert service.next(GrpcMessageWait("ns", ["red"], support)) is None
    assert service.calls == 2
    assert len(caplog.messages) == 1

    # The service was updated.
    now += grpc_message_wait._MISSING_S
    service.has_call, service.queues = True, ["red"]
    assert service.next(GrpcMessageWait("ns", ["red"], support)) == ["red"]


def test_a_wait_pauses_if_the_service_names_queues_without_messages_again_and_again() -> None:
    service = Service()
    service.queues = ["red"]
    wait = GrpcMessageWait("ns", ["red"], AwaitSupport())
    for _ in range(5):
        assert service.next(wait) == ["red"]
    assert len(service.pauses) == 2
    assert 0 < service.pauses[0] < service.pauses[1]


def test_more_queues_than_a_call_may_name_are_not_asked_for() -> None:
    service = Service()
    assert service.next(GrpcMessageWait("ns", [f"q{n}" for n in range(101)], AwaitSupport())) is None
    assert service.calls == 0
