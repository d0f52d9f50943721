"""Requests of the largest size: what a request costs is limited before the request is parsed, for every RPC.

`python -m bench --only large_requests` measures the memory and the blocks of the event loop.
"""

import asyncio
import select
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest

from bench.harness.large_requests import CHEAP, SIZE, hostile_requests, legal_requests, send
from bench.measurements.large_requests import memory_mb
from services.process import free_port
from services.serving_program import SERVE, ServingProgram
from tests.integration.service_thread import ServiceThread
from tests.security.http2 import Upload
from tests.security.tokens import entry, generic_client, write_token_file
from tests.support.jobs_namespace import jobs_namespace
from tests.support.wait_until import eventually
from tickwheel import limits
from tickwheel.rpc.methods import METHODS
from tickwheel.testing import PrivateServer
from tickwheel.v1 import message_service_pb2 as calls

pytestmark = pytest.mark.security

NAMESPACE = "service-large"
# The namespace of the tests of streams and waits, so that other tests leave no messages in its queue.
OF_STREAMS = "large-streams"
OTHER, HOSTILE = "tw_other-Of-Large", "tw_hostile-Of-Large"
# Without a limit, the requests of the streams would take 480 MB.
STREAMS, STREAMS_MB = 120, 250
AT_ONCE = 10
MEMORY_MB = 200
# The calls that wait, each with the fields of a request for what does not happen during a test.
WAITING: dict[str, dict[str, Any]] = {
    "Dequeue": {"queue": "jobs", "wait_ms": 60_000},
    "DequeueStream": {"queue": "jobs", "credit": 1},
    "AwaitMessages": {"queues": ["jobs"], "wait_ms": 60_000},
    "GetMessage": {"queue": "jobs", "id": "later", "wait_ms": 60_000},
}


@contextmanager
def serve(server: PrivateServer, folder: Path, namespace: str, *options: str) -> Iterator[ServingProgram]:
    """Run the service in a process of its own, whose memory is measured. The namespace has the queue `jobs`."""
    with jobs_namespace(server, namespace), ServingProgram(folder, *SERVE, server.url, *options) as serving:
        yield serving


@pytest.fixture(scope="module")
def program(tickwheel_server: PrivateServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingProgram]:
    with serve(tickwheel_server, tmp_path_factory.mktemp("service"), NAMESPACE) as serving:
        yield serving


@pytest.fixture
def metrics_port() -> int:
    return free_port()


@pytest.fixture
def new_program(tickwheel_server: PrivateServer, tmp_path: Path, metrics_port: int) -> Iterator[ServingProgram]:
    """The service of one test. After other tests, a process keeps free memory, in which requests could hide."""
    with serve(tickwheel_server, tmp_path, OF_STREAMS, f"--metrics=127.0.0.1:{metrics_port}") as serving:
        yield serving


@pytest.fixture
def program_with_tokens(tickwheel_server: PrivateServer, tmp_path: Path) -> Iterator[ServingProgram]:
    write_token_file(
        tmp_path, *(entry(token, '["produce", "consume"]', 'namespaces = ["*"]') for token in (OTHER, HOSTILE))
    )
    with serve(tickwheel_server, tmp_path, OF_STREAMS, f"--tokens={tmp_path / 'tokens.toml'}") as serving:
        yield serving


@pytest.fixture(scope="module")
def channels(program: ServingProgram) -> Iterator[list[grpc.Channel]]:
    opened = [grpc.insecure_channel(program.target, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(AT_ONCE)]
    for channel in opened:
        generic_client(channel, "").call("GetCounts", namespace=NAMESPACE, queue="jobs")
    yield opened
    for channel in opened:
        channel.close()


@pytest.fixture
def at_rest(program: ServingProgram, channels: list[grpc.Channel]) -> float:
    """The memory before the test, in MB. The peak begins there, too."""
    Path(f"/proc/{program.pid}/clear_refs").write_text("5")
    return memory_mb(program.pid, "VmRSS")


def codes(channels: list[grpc.Channel], name: str, requests: list[bytes]) -> list[grpc.StatusCode]:
    """Send the requests at the same time, each on a connection of its own. Return how the calls ended."""

    def code(channel: grpc.Channel, request: bytes) -> grpc.StatusCode:
        try:
            send(channel, METHODS[name], request)
        except grpc.RpcError as error:
            found: grpc.StatusCode = error.code()
            return found
        return grpc.StatusCode.OK

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(code, channels, requests))


@pytest.mark.parametrize("name", METHODS)
def test_ten_hostile_requests_of_an_rpc_take_little_memory(
    program: ServingProgram, channels: list[grpc.Channel], at_rest: float, name: str, record_property: Any
) -> None:
    for shape, request in hostile_requests(METHODS[name], NAMESPACE, "jobs"):
        ended = codes(channels, name, [request] * AT_ONCE)
        if not shape.startswith(CHEAP):
            assert set(ended) <= {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}, shape
            assert grpc.StatusCode.INVALID_ARGUMENT in ended, shape
    peak = memory_mb(program.pid, "VmHWM") - at_rest
    record_property("memory_mb", round(peak))
    assert peak < MEMORY_MB


@pytest.mark.parametrize("place", range(5), ids=[shape for shape, _, _ in legal_requests("", "", 0)])
def test_ten_of_the_largest_valid_requests_take_little_memory(
    program: ServingProgram, channels: list[grpc.Channel], at_rest: float, place: int
) -> None:
    rows = [list(legal_requests(NAMESPACE, "jobs", number))[place] for number in range(AT_ONCE)]
    ended = codes(channels, rows[0][1], [request for _, _, request in rows])
    # The service may reject some of them until the others are done.
    assert set(ended) <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert ended.count(grpc.StatusCode.OK) >= AT_ONCE // 2
    assert memory_mb(program.pid, "VmHWM") - at_rest < MEMORY_MB


@pytest.mark.usefixtures("program")
def test_the_bytes_of_large_requests_in_flight_are_limited_for_each_caller(
    tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Less than twice the bytes of one request, which a caller may have in any case.
    monkeypatch.setattr(limits, "REQUESTS_BYTES", SIZE)
    with ServiceThread(tickwheel_server.url) as serving, grpc.insecure_channel(serving.target) as channel:
        request = next(request for _, name, request in legal_requests(NAMESPACE, "jobs", 0) if name == "EnqueueBatch")
        in_flight = serving.server._call_limits.requests.bytes
        in_flight.count("the address 127.0.0.1", SIZE)
        with pytest.raises(grpc.RpcError) as refused:
            send(channel, METHODS["EnqueueBatch"], request)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "bytes of large requests in flight" in str(refused.value.details())
        in_flight.put_back("the address 127.0.0.1", SIZE)
        in_flight.count("another caller", SIZE)
        send(channel, METHODS["EnqueueBatch"], request)


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("name", ["EnqueueBatch", "EnqueueStream", "Complete"])
def test_a_large_request_waits_for_a_turn_of_its_caller_and_a_small_one_does_not(
    tickwheel_server: PrivateServer, name: str
) -> None:
    # A large unknown field.
    padding = b"\xfa\x01\xe0\xa7\x12" + bytes(300_000)
    small = METHODS[name].request(namespace=NAMESPACE, queue="jobs").SerializeToString()

    def ended(channel: grpc.Channel, request: bytes) -> bool:
        # The requests are empty, and some RPCs reject such a request when they process it.
        with suppress(grpc.RpcError):
            send(channel, METHODS[name], request)
        return True

    with (
        ServiceThread(tickwheel_server.url) as serving,
        grpc.insecure_channel(serving.target) as channel,
        ThreadPoolExecutor(1) as pool,
    ):
        requests = serving.server._call_limits.requests
        turns = requests.turns("the address 127.0.0.1")
        for _ in range(limits.LARGE_REQUESTS):
            asyncio.run_coroutine_threadsafe(turns.acquire(), serving._loop).result(20)
        large = pool.submit(ended, channel, small + padding)
        eventually(lambda: requests.bytes.total > 0, "the large request has arrived")
        assert ended(channel, small)
        assert not large.done()
        assert requests.bytes.total == len(small + padding)
        serving._loop.call_soon_threadsafe(turns.release)
        assert large.result(20)


def test_a_batch_of_many_dequeues_waits_for_a_turn_of_its_caller_and_a_small_one_does_not(
    tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TURN_S", 60.0)

    def dequeue(channel: grpc.Channel, count: int) -> bool:
        requests = [
            {"queue": "jobs", "request_id": f"turns-{count}-{n}:1", "first_attempt": True} for n in range(count)
        ]
        send(channel, METHODS["DequeueBatch"], calls.DequeueBatchRequest(requests=requests).SerializeToString())
        return True

    with (
        ServiceThread(tickwheel_server.url) as serving,
        grpc.insecure_channel(serving.target) as channel,
        ThreadPoolExecutor(2) as pool,
    ):
        turns = serving.server._call_limits.requests.item_turns
        turn = turns.turn("the address 127.0.0.1", limits.CALLER_ITEMS)
        asyncio.run_coroutine_threadsafe(turn.begin(), serving._loop).result(20)
        large = pool.submit(dequeue, channel, 4)
        eventually(lambda: bool(turns._lines["the address 127.0.0.1", 0]._waiting), "the batch waits")
        # A page of messages takes as long as a batch.
        page = pool.submit(
            send, channel, METHODS["ListMessages"], calls.ListMessagesRequest(queue="jobs").SerializeToString()
        )
        eventually(lambda: len(turns._lines["the address 127.0.0.1", 0]._waiting) == 2, "the list waits")
        assert dequeue(channel, 3)
        assert not large.done()
        assert not page.done()
        serving._loop.call_soon_threadsafe(turn.end)
        assert large.result(20)
        # There is no queue to list.
        assert page.exception(20)


@pytest.mark.parametrize("name", WAITING)
def test_a_waiting_call_keeps_no_unknown_fields(new_program: ServingProgram, metrics_port: int, name: str) -> None:
    count = 1_000
    unknown = b"\xfa\x01\xe0\xd4\x03" + b"x" * 60_000
    request = METHODS[name].request(namespace=OF_STREAMS, **WAITING[name]).SerializeToString()
    metrics = f"http://127.0.0.1:{metrics_port}/metrics"
    never = threading.Event()

    def is_parked(number: int) -> bool:
        return f"tickwheel_service_parked_calls {number:.1f}" in urlopen(metrics, timeout=10).read().decode()

    def memory_while_waiting(channel: grpc.Channel, request: bytes) -> float:
        call: Any = channel.stream_stream(METHODS[name].path)
        waiting: list[Any] = []
        # Few at a time, because requests also take memory before the calls wait, which the C library keeps.
        for parked in range(50, count + 1, 50):
            for _ in range(50):
                more: Any = iter(never.wait, True) if name == "DequeueStream" else ()
                waiting.append(call(chain([request], more), timeout=60))
            eventually(partial(is_parked, parked), "the calls wait")
        memory = memory_mb(new_program.pid, "VmRSS")
        for each in waiting:
            each.cancel()
        eventually(lambda: is_parked(0), "no call waits")
        return memory

    with ExitStack() as stack:
        stack.callback(never.set)
        channel = stack.enter_context(grpc.insecure_channel(new_program.target))
        message = {"id": "later", "delay_ms": 3_600_000}
        generic_client(channel, "").call("Enqueue", namespace=OF_STREAMS, queue="jobs", message=message)
        without = memory_while_waiting(channel, request)
        # The unknown fields of all calls have 60 MB.
        assert memory_while_waiting(channel, request + unknown) - without < 40


def test_requests_that_never_arrive_whole_take_little_memory(program: ServingProgram, at_rest: float) -> None:
    """A stranger announces health checks of 4 MiB, and sends as much of them as the service accepts."""
    with ExitStack() as stack:
        uploads = upload_all(stack, program.target, "/grpc.health.v1.Health/Check", 150)
        assert all(upload.sent for upload in uploads)
        assert memory_mb(program.pid, "VmHWM") - at_rest < MEMORY_MB


@pytest.mark.parametrize("name", ["DequeueStream", "EnqueueStream"])
def test_streams_whose_requests_never_arrive_whole_take_little_memory(
    program_with_tokens: ServingProgram, name: str
) -> None:
    target, pid = program_with_tokens.target, program_with_tokens.pid
    with ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(target))
        other = generic_client(channel, OTHER)
        open_request = calls.DequeueStreamRequest(namespace=OF_STREAMS, queue="jobs", credit=10).SerializeToString()
        metadata = (("authorization", f"Bearer {OTHER}"),)
        never = threading.Event()
        stack.callback(never.set)
        requests: Any = chain([open_request], iter(never.wait, True))
        stream: Any = channel.stream_stream(METHODS["DequeueStream"].path)(requests, timeout=60, metadata=metadata)
        at_rest = memory_mb(pid, "VmRSS")
        upload_all(stack, target, METHODS[name].path, STREAMS, HOSTILE)
        assert memory_mb(pid, "VmRSS") - at_rest < STREAMS_MB
        other.call("Enqueue", namespace=OF_STREAMS, queue="jobs", message={"payload": "YQ=="})
        assert calls.DequeueStreamResponse.FromString(next(stream)).deliveries[0].payload == b"a"
        stream.cancel()


def upload_all(stack: ExitStack, target: str, path: str, count: int, token: str = "") -> list[Upload]:
    """Announce ``count`` requests of the largest size, and send as much of them as the service takes."""
    announced = limits.REQUEST_BYTES - 10
    request = struct.pack(">BI", 0, announced) + bytes(announced - 1)
    uploads = [stack.enter_context(closing(Upload(target, path, request, token))) for _ in range(count)]
    # Until the service takes no more bytes for a second.
    while select.select(uploads, (), (), 1)[0]:
        for upload in uploads:
            upload.advance()
    return uploads
