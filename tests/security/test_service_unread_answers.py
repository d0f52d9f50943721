"""Answers that a client does not read: they hold places and bytes in the limits of the service until the calls end."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
from google.protobuf import empty_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from bench.measurements.large_requests import memory_mb
from services.process import free_port
from services.serving_program import SERVE, ServingProgram
from tests.integration.service_thread import ServiceThread
from tests.security.http2 import DeafClient
from tests.security.tokens import entry, generic_client, write_token_file
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel, limits
from tickwheel.testing import PrivateServer
from tickwheel.v1 import message_service_pb2 as calls, queue_service_pb2 as admin

pytestmark = pytest.mark.security

NAMESPACE = "service-unread"
OTHER, HOSTILE = "tw_other-Of-Unread", "tw_hostile-Of-Unread"
PAYLOAD = b"x" * limits.PAYLOAD_BYTES
MESSAGES, MEMORY_MB = 1_000, 200
CHECK = "/grpc.health.v1.Health/Check"


@pytest.fixture(scope="module")
def server(tickwheel_server: PrivateServer) -> Iterator[PrivateServer]:
    with Tickwheel(tickwheel_server.url, namespace=NAMESPACE, shards=4, drive=False) as tickwheel:
        for name in ("listed", "jobs", "others"):
            queue = tickwheel.create_queue(name)
            count = 100 if name == "others" else MESSAGES
            for start in range(0, count, 100):
                queue.enqueue_many(NewMessage(PAYLOAD, id=f"m{n}") for n in range(start, start + 100))
    yield tickwheel_server
    tickwheel_server.clear(NAMESPACE)


class Program(ServingProgram):
    """The service in a process of its own, whose memory is measured."""

    def __init__(self, folder: Path, server: PrivateServer) -> None:
        here = f'namespaces = ["{NAMESPACE}"]\n'
        write_token_file(folder, *(entry(token, '["consume"]', here) for token in (OTHER, HOSTILE)))
        self._metrics = f"127.0.0.1:{free_port()}"
        super().__init__(folder, *SERVE, server.url, f"--tokens={folder / 'tokens.toml'}", f"--metrics={self._metrics}")

    def answered(self, method: str) -> int:
        """Return the number of calls whose handler has ended."""
        page = urlopen(f"http://{self._metrics}/metrics", timeout=10).read().decode()
        found = re.findall(rf'^tickwheel_service_calls_total{{.*method="{method}".*}} (.*)$', page, re.MULTILINE)
        return int(sum(map(float, found)))


@pytest.fixture
def program(server: PrivateServer, tmp_path: Path) -> Iterator[Program]:
    with Program(tmp_path, server) as serving:
        yield serving


def grown_mb(program: Program, deaf: DeafClient, method: str, request: Any, count: int) -> float:
    """Send calls whose answers nobody reads while another token calls. Return how far the memory grows, in MB."""
    with grpc.insecure_channel(program.target) as channel:
        other = generic_client(channel, OTHER)
        others = {"namespace": NAMESPACE, "queue": "others"}
        assert other.call("ListMessages", **others)["messages"]
        Path(f"/proc/{program.pid}/clear_refs").write_text("5")
        at_rest, before = memory_mb(program.pid, "VmRSS"), program.answered(method)
        deaf.call(method, request, count)
        for _ in range(10):
            assert other.call("ListMessages", **others)["messages"]
            assert other.call("Dequeue", **others, limit=2)["deliveries"]
        eventually(lambda: program.answered(method) >= before + count, "each call has an answer or is refused", 60)
        assert other.call("ListMessages", **others)["messages"]
        return memory_mb(program.pid, "VmHWM") - at_rest


def test_unread_lists_of_messages_take_little_memory(program: Program, record_property: Any) -> None:
    with closing(DeafClient(program.target, HOSTILE)) as deaf:
        request = calls.ListMessagesRequest(namespace=NAMESPACE, queue="listed")
        grown = grown_mb(program, deaf, "ListMessages", request, 60)
        record_property("memory_mb", round(grown))
        assert grown < MEMORY_MB


@pytest.mark.parametrize("wait_ms", [0, 1_000])
def test_unread_answers_of_a_repeated_dequeue_take_little_memory(
    program: Program, record_property: Any, wait_ms: int
) -> None:
    with closing(DeafClient(program.target, HOSTILE)) as deaf:
        request = calls.DequeueRequest(
            namespace=NAMESPACE, queue="jobs", limit=400, request_id=f"s{wait_ms}:1", wait_ms=wait_ms
        )
        grown = grown_mb(program, deaf, "Dequeue", request, 60)
        record_property("memory_mb", round(grown))
        assert grown < MEMORY_MB


def test_a_caller_with_too_many_unread_answers_is_refused_until_its_calls_end(
    server: PrivateServer, tmp_path: Path
) -> None:
    here = f'namespaces = ["{NAMESPACE}"]\n'
    tokens = write_token_file(tmp_path, *(entry(token, '["consume"]', here) for token in (OTHER, HOSTILE)))
    listed = {"namespace": NAMESPACE, "queue": "listed"}
    with ExitStack() as stack:
        service = stack.enter_context(ServiceThread(server.url, tokens=tokens))
        channel = stack.enter_context(grpc.insecure_channel(service.target))
        hostile, other = generic_client(channel, HOSTILE), generic_client(channel, OTHER)
        held = service.server._answers.bytes
        with closing(DeafClient(service.target, HOSTILE)) as deaf:
            deaf.call("ListMessages", calls.ListMessagesRequest(**listed), 200)
            eventually(lambda: deaf.ended, "a call is refused")
            with pytest.raises(grpc.RpcError) as refused:
                hostile.call("ListMessages", **listed)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "bytes of answers that its clients have not read" in str(refused.value.details())
            assert other.call("ListMessages", **listed)["messages"]
            # Leases can be settled in any case.
            hostile.call("Complete", **listed, leases=[])
        eventually(lambda: not held.total, "the calls have ended with their connection")
        assert hostile.call("ListMessages", **listed)["messages"]
        assert not service.server._answers.building


def test_unread_health_checks_hold_no_more_places_than_documented(server: PrivateServer) -> None:
    connections, count = 3, 1_000
    with ExitStack() as stack:
        service = stack.enter_context(ServiceThread(server.url))
        deaf = [
            stack.enter_context(closing(DeafClient(service.target, source="127.0.0.2"))) for _ in range(connections)
        ]
        for client in deaf:
            client.call(CHECK, empty_pb2.Empty(), count)
        refused = connections * count - limits.HEALTH_CHECKS // 2
        eventually(lambda: sum(client.ended for client in deaf) == refused, "all calls beyond the share are refused")
        channel = stack.enter_context(grpc.insecure_channel(service.target))
        stub: Any = HealthStub(channel)
        assert stub.Check(HealthCheckRequest(), timeout=20).status


def test_unread_calls_hold_no_more_places_than_documented(
    server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OTHER_CALLS", 100)
    with ExitStack() as stack:
        service = stack.enter_context(ServiceThread(server.url, waiting=100))
        deaf = stack.enter_context(closing(DeafClient(service.target, source="127.0.0.2")))
        deaf.call("/tickwheel.v1.QueueService/GetQueue", admin.GetQueueRequest(namespace=NAMESPACE, queue="jobs"), 300)
        eventually(lambda: deaf.ended >= 150, "all calls beyond the share are refused")
        channel = stack.enter_context(grpc.insecure_channel(service.target))
        assert generic_client(channel, "").call("GetQueue", namespace=NAMESPACE, queue="jobs")["queue"]


def test_a_page_of_large_messages_is_short_and_the_pages_are_complete(server: PrivateServer) -> None:
    with ServiceThread(server.url) as service, grpc.insecure_channel(service.target) as channel:
        listing = generic_client(channel, "")
        found: list[str] = []
        request = {"namespace": NAMESPACE, "queue": "listed", "page_token": ""}
        while True:
            page = listing.call("ListMessages", **request)
            size = sum(len(item["payload"]) for item in page["messages"]) * 3 // 4
            # HSCAN may return a few more messages than it is asked for.
            assert size < 2 * limits.PAGE_BYTES
            found += [item["id"] for item in page["messages"]]
            if not (token := page["next_page_token"]):
                break
            request["page_token"] = token
        assert set(found) == {f"m{n}" for n in range(MESSAGES)}


@pytest.mark.parametrize("consistency", ["CONSISTENCY_HEADS", "CONSISTENCY_EXACT"])
def test_a_dequeue_of_large_messages_is_short_and_a_repeated_one_returns_the_same(
    server: PrivateServer, consistency: str
) -> None:
    queue = consistency.rpartition("_")[2].lower()
    with Tickwheel(server.url, namespace=NAMESPACE, drive=False) as tickwheel:
        jobs = tickwheel.create_queue(queue)
        for start in range(0, 400, 100):
            jobs.enqueue_many(NewMessage(PAYLOAD, id=f"m{n}") for n in range(start, start + 100))
    with ServiceThread(server.url) as service, grpc.insecure_channel(service.target) as channel:
        worker = generic_client(channel, "")
        found: list[str] = []
        for n in range(10):
            request: dict[str, Any] = {
                "namespace": NAMESPACE,
                "queue": queue,
                "limit": 400,
                "request_id": f"r{queue}:{n + 1}",
                "consistency": consistency,
            }
            first = [item["lease"]["id"] for item in worker.call("Dequeue", **request)["deliveries"]]
            assert len(first) <= limits.ANSWER_BYTES // limits.PAYLOAD_BYTES + 1
            assert [item["lease"]["id"] for item in worker.call("Dequeue", **request)["deliveries"]] == first
            found += first
        assert sorted(found) == sorted(f"m{n}" for n in range(400))
