"""No caller takes the places of others: streams of health and reflection, calls without a request, many streams, and
bursts of calls.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from tests.integration.service_thread import ServiceThread
from tests.security.http2 import PREFACE, SETTINGS, frame, headers, message
from tests.security.tokens import entry, generic_client, write_token_file
from tests.support.jobs_namespace import jobs_namespace
from tests.support.wait_until import eventually
from tickwheel import Tickwheel, limits
from tickwheel.service.token_file import TokenFile
from tickwheel.testing import PrivateServer
from tickwheel.v1 import message_service_pb2 as calls
from tickwheel.v1.message_pb2 import NewMessage

pytestmark = pytest.mark.security

GOOD, GREEDY = "tw_good-Of-Fairness", "tw_greedy-Of-Fairness"
CROWD = [f"tw_crowd{n}-Of-Fairness" for n in range(14)]
NAMESPACE = "service-fairness"
# Few places, so that the strangers of a test want many more: 100 waiting calls and 100 others, 40 watches.
PLACES, WATCHES, MANY = 200, 40, 300
# Connections with `MANY` calls each. In total, these are more than `limits.UNACCEPTED_CALLS`.
BURST = 16
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
# Addresses of strangers. Seven that take their share one after the other leave none of 100 places free.
SOURCES = [f"127.0.0.{n}" for n in range(2, 16)]
_DATA, _HEADERS, _RESET, _PING = 0, 1, 3, 6
_END = _ACK = 1
ENQUEUE = "/tickwheel.v1.MessageService/Enqueue"
REQUEST = {"namespace": NAMESPACE, "queue": "jobs"}


@pytest.fixture
def tokens(tmp_path: Any) -> TokenFile:
    here = f'namespaces = ["{NAMESPACE}"]\n'
    roles = '["produce", "consume"]'
    limited = "messages_per_second = 1\nwaiting = 1"
    crowd = (entry(token, roles, here) for token in CROWD)
    return write_token_file(tmp_path, entry(GOOD, roles, here), entry(GREEDY, roles, here + limited), *crowd)


@pytest.fixture
def service(
    tickwheel_server: PrivateServer, tokens: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServiceThread]:
    monkeypatch.setattr(limits, "OTHER_CALLS", 100)
    monkeypatch.setattr(limits, "HEALTH_CHECKS", WATCHES)
    monkeypatch.setattr(limits, "HEALTH_WATCHES", WATCHES)
    with (
        jobs_namespace(tickwheel_server, NAMESPACE),
        ServiceThread(tickwheel_server.url, tokens=tokens, waiting=100) as serving,
    ):
        yield serving


class Stranger:
    """A connection with many calls, from an address of its own. Nobody reads its responses, except for `answers`."""

    def __init__(
        self, target: str, path: str, data: bytes | None, count: int, token: str = "", source: str = SOURCES[0]
    ) -> None:
        host, _, port = target.rpartition(":")
        fields = {b"authorization": f"Bearer {token}".encode()} if token else {}
        block = headers(path, fields)
        calls = (
            frame(1, 4, 2 * n + 1, block) + (b"" if data is None else frame(0, 1, 2 * n + 1, data))
            for n in range(count)
        )
        self._socket = socket.create_connection((host, int(port)), 10, source_address=(source, 0))
        self._socket.sendall(PREFACE + SETTINGS + b"".join(calls))
        self._received = self._socket.makefile("rb")
        self._count = count
        self._answered: set[int] = set()
        self._ended: set[int] = set()

    def wait_until_sent(self) -> None:
        """Wait until the service has received all calls."""
        self._socket.sendall(frame(_PING, 0, 0, b"sent all"))
        while self._read_frame() != (_PING, _ACK):
            pass

    def answers(self) -> int:
        """Wait until all calls have ended. Return the number of calls with an answer."""
        while len(self._ended) < self._count:
            self._read_frame()
        return len(self._answered)

    def _read_frame(self) -> tuple[int, int]:
        head = self._received.read(9)
        kind, flags, stream = struct.unpack_from(">BBI", head, 3)
        self._received.read(int.from_bytes(head[:3], "big"))
        if kind == _DATA:
            self._answered.add(stream)
        elif kind == _RESET or (kind == _HEADERS and flags & _END):
            self._ended.add(stream)
        return kind, flags

    def close(self) -> None:
        self._received.close()
        self._socket.close()


def in_flight(service: ServiceThread, name: str) -> int:
    return service.server.counters.methods[name].in_flight


def wait_until_decided(service: ServiceThread, name: str, count: int) -> None:
    """Wait until each of ``count`` calls that never end has a place or was refused."""
    eventually(
        lambda: in_flight(service, name) + refused(service, name) == count, "each call has a place or is refused"
    )


def wait_until_refused(service: ServiceThread, name: str, count: int, held: int) -> None:
    """Wait until ``held`` of ``count`` calls that never end have places, and the others have ended.

    A call that is refused counts as in flight until its client has received the refusal.
    """
    eventually(
        lambda: (in_flight(service, name), refused(service, name)) == (held, count - held), "the others are refused"
    )


def refused(service: ServiceThread, name: str) -> int:
    return service.server.counters.methods[name].codes.get("RESOURCE_EXHAUSTED", 0)


def details(error: Any) -> tuple[ErrorInfo, RetryInfo]:
    status = Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    info, retry = ErrorInfo(), RetryInfo()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(retry)
    return info, retry


def test_streams_of_health_take_no_place_of_other_calls_and_of_other_peers(
    service: ServiceThread, channel: grpc.Channel
) -> None:
    empty_request = struct.pack(">BI", 0, 0)
    strangers = [Stranger(service.target, WATCH, empty_request, MANY) for _ in range(2)]
    eventually(lambda: refused(service, "Health.Watch") >= MANY, "the others are refused")
    eventually(lambda: in_flight(service, "Health.Watch") == WATCHES // 2, "the address has its share")
    good = generic_client(channel, GOOD)
    for _ in range(20):
        good.call("Enqueue", **REQUEST, message={})
    stub: Any = HealthStub(channel)
    assert stub.Check(HealthCheckRequest(), timeout=20).status
    watches = [stub.Watch(HealthCheckRequest(), timeout=60) for _ in range(3)]
    assert all(next(watch).status for watch in watches)
    for watch in watches:
        watch.cancel()
    for stranger in strangers:
        stranger.close()
    eventually(lambda: in_flight(service, "Health.Watch") == 0, "the places are free")


@pytest.mark.parametrize(("taken", "free"), [(CHECK, WATCH), (WATCH, CHECK)], ids=["checks", "watches"])
def test_health_checks_of_many_addresses_leave_each_other_address_some_of_both_kinds(
    service: ServiceThread, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch, taken: str, free: str
) -> None:
    # No call of the strangers ends, because its request never arrives.
    monkeypatch.setattr(limits, "REQUEST_ARRIVAL_S", 600.0)
    monkeypatch.setattr(limits, "HEALTH_ARRIVAL_S", 600.0)
    name = taken.removeprefix("/grpc.health.v1.").replace("/", ".")
    with ExitStack() as stack:
        held = 0
        for number, source in enumerate(SOURCES, 1):
            # An address may have as many places as it leaves free, and a few in any case.
            held += max((WATCHES - held) // 2, limits.CALLER_CALLS)
            stack.enter_context(closing(Stranger(service.target, taken, None, WATCHES, source=source)))
            wait_until_refused(service, name, number * WATCHES, held)
        assert held >= WATCHES
        check_health(channel, taken)
        eventually(lambda: in_flight(service, name) == held, "the call has ended")
        with closing(Stranger(service.target, taken, None, WATCHES, source="127.0.0.1")):
            eventually(lambda: in_flight(service, name) == held + limits.CALLER_CALLS, "the address has few places")
            with pytest.raises(grpc.RpcError, match=f"of {WATCHES} in total, and {limits.CALLER_CALLS} in any case"):
                check_health(channel, taken)
            # The service counts a refusal after its client has received it.
            decided = (len(SOURCES) + 1) * WATCHES + 2
            eventually(lambda: refused(service, name) == decided - in_flight(service, name) - 1, "all are counted")
            # Checks and watches are bounded apart.
            check_health(channel, free)
        eventually(lambda: in_flight(service, name) == held, "the places of the address are free")
        check_health(channel, taken)


def check_health(channel: grpc.Channel, path: str) -> None:
    stub: Any = HealthStub(channel)
    if path == CHECK:
        assert stub.Check(HealthCheckRequest(), timeout=20).status
        return
    watch = stub.Watch(HealthCheckRequest(), timeout=20)
    assert next(watch).status
    watch.cancel()


@pytest.mark.parametrize("path", [CHECK, WATCH])
def test_a_health_check_whose_request_does_not_arrive_ends_earlier_than_other_calls(
    service: ServiceThread, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    assert limits.HEALTH_ARRIVAL_S < limits.REQUEST_ARRIVAL_S
    monkeypatch.setattr(limits, "HEALTH_ARRIVAL_S", 0.05)
    never = threading.Event()
    requests: Any = iter(never.wait, None)
    call: Any = channel.stream_stream(path)
    with pytest.raises(grpc.RpcError) as error:
        list(call(requests, timeout=20))
    never.set()
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "did not arrive within 0.05 s" in str(error.value.details())
    name = path.removeprefix("/grpc.health.v1.").replace("/", ".")
    eventually(lambda: in_flight(service, name) == 0, "the place is free")


def test_clients_repeat_the_calls_that_grpc_cancels_because_of_a_burst_of_others(service: ServiceThread) -> None:
    request = message(calls.EnqueueRequest(**REQUEST, message=NewMessage()))
    url = service.url.replace("//", f"//:{GOOD}@")
    with (
        ExitStack() as stack,
        Tickwheel(url, namespace=NAMESPACE, existing=True) as client,
        ThreadPoolExecutor(20) as threads,
    ):
        client.queue("jobs").enqueue()
        with service.blocked():
            # gRPC receives these calls, and the service accepts them after its event loop is free again.
            burst = [(WATCH, bytes(5), MANY, "")] * BURST
            for path, data, count, token in (*burst, (ENQUEUE, request, 20, GOOD)):
                caller = stack.enter_context(closing(Stranger(service.target, path, data, count, token)))
                caller.wait_until_sent()
            assert caller.answers() == 0
            enqueued = [threads.submit(client.queue("jobs").enqueue) for _ in range(20)]
        assert len({call.result(60).id for call in enqueued}) == 20


def test_a_refused_watch_has_the_details_of_a_limit(service: ServiceThread, channel: grpc.Channel) -> None:
    stub: Any = HealthStub(channel)
    watches = [stub.Watch(HealthCheckRequest(), timeout=60) for _ in range(WATCHES // 2)]
    assert all(next(watch).status for watch in watches)
    with pytest.raises(grpc.RpcError) as error:
        next(stub.Watch(HealthCheckRequest(), timeout=60))
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    info, retry = details(error.value)
    assert (info.domain, info.reason, retry.retry_delay.seconds) == ("tickwheel", "LIMIT_EXCEEDED", 1)
    assert "127.0.0.1 has 20 watching health checks" in str(error.value.details())


def test_reflection_needs_a_token_if_the_service_has_tokens(channel: grpc.Channel) -> None:
    stub: Any = ServerReflectionStub(channel)
    request = ServerReflectionRequest(list_services="")
    with pytest.raises(grpc.RpcError) as error:
        next(stub.ServerReflectionInfo(iter([request]), timeout=20))
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    metadata = (("authorization", f"Bearer {GOOD}"),)
    response = next(stub.ServerReflectionInfo(iter([request]), timeout=20, metadata=metadata))
    assert "tickwheel.v1.MessageService" in {item.name for item in response.list_services_response.service}


def test_the_version_v1_of_reflection_needs_a_token_too(channel: grpc.Channel) -> None:
    reflect: Any = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    with pytest.raises(grpc.RpcError) as error:
        next(reflect(iter([ServerReflectionRequest(list_services="").SerializeToString()]), timeout=20))
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_calls_of_a_token_without_a_request_leave_places_for_other_tokens(
    service: ServiceThread, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No call of the token ends, and there are more of them than places.
    monkeypatch.setattr(limits, "REQUEST_ARRIVAL_S", 600.0)
    with closing(Stranger(service.target, ENQUEUE, None, MANY, GREEDY)):
        wait_until_decided(service, "Enqueue", MANY)
        good = generic_client(channel, GOOD)
        for _ in range(20):
            good.call("Enqueue", **REQUEST, message={})
        assert good.call("Dequeue", **REQUEST, wait_ms=1)["deliveries"]
        assert in_flight(service, "Enqueue") == PLACES // 2
    eventually(lambda: in_flight(service, "Enqueue") == 0, "the places are free")


def test_an_address_without_a_token_has_at_most_nine_sixteenths_of_the_places(
    service: ServiceThread, tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_ARRIVAL_S", 600.0)
    with (
        ServiceThread(tickwheel_server.url, waiting=100) as open_service,
        closing(Stranger(open_service.target, ENQUEUE, None, MANY)),
    ):
        wait_until_refused(open_service, "Enqueue", MANY, PLACES * 9 // 16)


@pytest.mark.parametrize("kind", ["tokens", "addresses"])
def test_calls_of_many_callers_leave_each_other_caller_some_calls(
    service: ServiceThread, tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(limits, "REQUEST_ARRIVAL_S", 600.0)
    with ExitStack() as stack:
        if kind == "tokens":
            callers = [(token, SOURCES[0]) for token in CROWD]
        else:
            service = stack.enter_context(ServiceThread(tickwheel_server.url, waiting=100))
            callers = [("", source) for source in SOURCES]
        for number, (token, source) in enumerate(callers, 1):
            stack.enter_context(closing(Stranger(service.target, ENQUEUE, None, MANY, token, source)))
            wait_until_decided(service, "Enqueue", number * MANY)
        assert in_flight(service, "Enqueue") >= PLACES
        channel = stack.enter_context(grpc.insecure_channel(service.target))
        good = generic_client(channel, GOOD if kind == "tokens" else "")
        for _ in range(20):
            good.call("Enqueue", **REQUEST, message={})
        assert good.call("Dequeue", **REQUEST, wait_ms=1)["deliveries"]


def test_a_token_without_the_limit_waiting_has_few_streams(
    service: ServiceThread, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAMS", 2)

    def open_stream(token: str) -> Any:
        call: Any = channel.stream_stream("/tickwheel.v1.MessageService/DequeueStream")
        return call(iter(threading.Event().wait, True), timeout=60, metadata=(("authorization", f"Bearer {token}"),))

    streams = [open_stream(GOOD) for _ in range(2)]
    eventually(lambda: in_flight(service, "DequeueStream") == 2, "the streams are open")
    with pytest.raises(grpc.RpcError) as error:
        next(open_stream(GOOD))
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details(error.value)[0].reason == "LIMIT_EXCEEDED"
    assert "has 2 streams" in str(error.value.details())
    for stream in streams:
        stream.cancel()
    eventually(lambda: in_flight(service, "DequeueStream") == 0, "the places are free")
    # The operator of the service decides how much memory the streams of this token may take.
    monkeypatch.setattr(limits, "STREAMS", 0)
    stream = open_stream(GREEDY)
    eventually(lambda: in_flight(service, "DequeueStream") == 1, "the stream is open")
    stream.cancel()


@pytest.mark.parametrize("name", ["Enqueue", "DequeueBatch"])
def test_a_call_whose_request_does_not_arrive_ends_and_frees_its_place(
    service: ServiceThread, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(limits, "REQUEST_ARRIVAL_S", 0.05)
    call: Any = channel.stream_stream(f"/tickwheel.v1.MessageService/{name}")
    never = threading.Event()
    requests: Any = iter(never.wait, None)
    with pytest.raises(grpc.RpcError) as error:
        list(call(requests, timeout=20, metadata=(("authorization", f"Bearer {GREEDY}"),)))
    never.set()
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "did not arrive within 0.05 s" in str(error.value.details())
    assert details(error.value)[0].reason == "LIMIT_EXCEEDED"
    eventually(lambda: in_flight(service, name) == 0, "the place is free")
