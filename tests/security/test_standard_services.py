"""The limits of the standard services: the open calls of reflection, and the size of requests to health and reflection.
Their clients delay neither each other nor the stop of the service.

`test_service_fairness.py` tests the limits of health checks.
"""

import queue
import signal
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from services.serving_program import SERVE, ServingProgram
from tests.integration.cli.command_runner import ENDS_S
from tests.integration.service_thread import ServiceThread
from tests.security.http2 import DeafClient
from tests.security.test_service_fairness import details, in_flight
from tests.security.tokens import entry, generic_client, write_token_file
from tests.support.jobs_namespace import jobs_namespace
from tests.support.wait_until import eventually
from tickwheel import limits
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

GREEDY, SECOND, THIRD = (f"tw_{name}-Of-Reflection" for name in ("greedy", "second", "third"))
NAMESPACE = "standard-services"
# The first caller may have half of the places, the second half of the others, and each further one still one.
PLACES = 4
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
METADATA = (("authorization", f"Bearer {GREEDY}"),)
LIST = ServerReflectionRequest(list_services="")
RPCS: dict[str, tuple[bytes, Any]] = {
    CHECK: (HealthCheckRequest().SerializeToString(), HealthCheckResponse),
    WATCH: (HealthCheckRequest().SerializeToString(), HealthCheckResponse),
    REFLECTION: (LIST.SerializeToString(), ServerReflectionResponse),
}


@pytest.fixture
def service(
    tickwheel_server: PrivateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServiceThread]:
    monkeypatch.setattr(limits, "REFLECTIONS", PLACES)
    entries = (entry(token, '["produce"]', f'namespaces = ["{NAMESPACE}"]\n') for token in (GREEDY, SECOND, THIRD))
    tokens = write_token_file(tmp_path, *entries)
    with jobs_namespace(tickwheel_server, NAMESPACE), ServiceThread(tickwheel_server.url, tokens=tokens) as serving:
        yield serving


class Reflection:
    """An open call of reflection, which has had one answer."""

    def __init__(self, channel: grpc.Channel, token: str) -> None:
        stub: Any = ServerReflectionStub(channel)
        self._requests: queue.SimpleQueue[ServerReflectionRequest | None] = queue.SimpleQueue()
        self._call = stub.ServerReflectionInfo(
            iter(self._requests.get, None), timeout=60, metadata=(("authorization", f"Bearer {token}"),)
        )
        try:
            self.ask()
        except grpc.RpcError:
            self.end()
            raise

    def ask(self) -> None:
        """Send a request and read its answer."""
        self._requests.put(LIST)
        assert next(self._call).list_services_response.service

    def end(self) -> None:
        self._requests.put(None)


def test_calls_of_reflection_above_the_limit_are_refused_and_all_others_go_on(
    service: ServiceThread, channel: grpc.Channel
) -> None:
    name = "ServerReflection.ServerReflectionInfo"
    with ExitStack() as stack:

        def reflect(token: str) -> Reflection:
            opened = Reflection(channel, token)
            stack.callback(opened.end)
            return opened

        opened = [reflect(token) for token in (GREEDY, GREEDY, SECOND, THIRD)]
        for token, held in ((GREEDY, 2), (SECOND, 1), (THIRD, 1)):
            with pytest.raises(grpc.RpcError) as error:
                reflect(token)
            assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert details(error.value)[0].reason == "LIMIT_EXCEEDED"
            text = f"token '{token[3:]}' has {held} calls of reflection in flight"
            assert text in str(error.value.details())
            assert f"of {PLACES} in total, and 1 in any case" in str(error.value.details())
        for reflection in opened:
            reflection.ask()
        stub: Any = HealthStub(channel)
        assert stub.Check(HealthCheckRequest(), timeout=20).status == HealthCheckResponse.SERVING
        generic_client(channel, GREEDY).call("Enqueue", namespace=NAMESPACE, queue="jobs", message={})
    eventually(lambda: in_flight(service, name) == 0, "the places are free")
    Reflection(channel, GREEDY).end()


@pytest.mark.parametrize("path", RPCS)
def test_a_request_of_health_or_reflection_above_a_kibibyte_is_refused_and_the_next_one_is_answered(
    channel: grpc.Channel, path: str
) -> None:
    request, response = RPCS[path]
    call: Any = channel.stream_stream(path)

    def answer(size: int) -> Any:
        """Call with a request of ``size`` bytes, and return the first answer."""
        answers = call(iter([padded(request, size)]), timeout=20, metadata=METADATA)
        first = response.FromString(next(answers))
        answers.cancel()
        # Reflection answers with a copy of the request.
        first.DiscardUnknownFields()
        return first

    with pytest.raises(grpc.RpcError) as error:
        answer(1_025)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details() == "the request has 1,025 bytes, and at most 1,024 are allowed"
    assert answer(1_024) == answer(len(request))


@pytest.mark.parametrize("path", [CHECK, WATCH])
def test_a_client_that_reads_nothing_delays_neither_other_calls_of_health_nor_the_stop(
    tickwheel_server: PrivateServer, tmp_path: Path, path: str
) -> None:
    with (
        ServingProgram(tmp_path, *SERVE, tickwheel_server.url, "--drain", "60s") as service,
        closing(DeafClient(service.target)) as deaf,
        grpc.insecure_channel(service.target) as channel,
    ):
        deaf.call(path, HealthCheckRequest(), limits.CALLER_CALLS - 1)
        # The service refuses the last call after it has accepted the others.
        deaf.call(path, HealthCheckRequest(service="x" * 1_024))
        eventually(lambda: deaf.ended, "the calls have begun")
        stub: Any = HealthStub(channel)
        watch = stub.Watch(HealthCheckRequest(), timeout=60)
        assert next(watch).status == HealthCheckResponse.SERVING
        assert stub.Check(HealthCheckRequest(), timeout=20).status == HealthCheckResponse.SERVING
        service.send_signal(signal.SIGTERM)
        assert [answer.status for answer in watch] == [HealthCheckResponse.NOT_SERVING]
        assert service.wait(ENDS_S) == 0


def test_health_lists_the_services(service: ServiceThread, channel: grpc.Channel) -> None:
    # The package with the types of the library lacks this response.
    health: Any = health_pb2
    call: Any = channel.unary_unary("/grpc.health.v1.Health/List", None, health.HealthListResponse.FromString)
    statuses = call(b"", timeout=20).statuses
    assert {name: item.status for name, item in statuses.items()} == dict.fromkeys(
        ("", "tickwheel.v1.MessageService", "tickwheel.v1.QueueService"), HealthCheckResponse.SERVING
    )


def padded(request: bytes, size: int) -> bytes:
    """Return the request with an unknown field, so that the request has ``size`` bytes."""
    if size == len(request):
        return request
    rest = size - len(request) - 4
    # The field 31, a string, and its length as a varint of two bytes.
    return request + b"\xfa\x01" + struct.pack("<BB", rest & 0x7F | 0x80, rest >> 7) + b"x" * rest
