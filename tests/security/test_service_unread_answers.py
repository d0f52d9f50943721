"""Answers that a client does not read: they hold places and bytes in the limits of the service until the calls end."""

import gc
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import grpc
import pytest
from google.protobuf import empty_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from bench.measurements.large_requests import memory_mb
from services.process import free_port
from services.serving_program import SERVE, ServingProgram
from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.security.http2 import DeafClient
from tests.security.tokens import entry, generic_client, write_token_file
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel, limits
from tickwheel.model.message import LeasedMessage
from tickwheel.operations.dequeue import Dequeue
from tickwheel.redis import wait_list
from tickwheel.service import call_observer
from tickwheel.testing import PrivateServer
from tickwheel.v1 import message_service_pb2 as calls, queue_service_pb2 as admin

pytestmark = pytest.mark.security

NAMESPACE = "service-unread"
OTHER, HOSTILE = "tw_other-Of-Unread", "tw_hostile-Of-Unread"
PAYLOAD = b"x" * limits.PAYLOAD_BYTES
MESSAGES, MEMORY_MB = 1_000, 200
MIB = 1024 * 1024
CHECK = "/grpc.health.v1.Health/Check"


@pytest.fixture(scope="module")
def server(tickwheel_server: PrivateServer) -> Iterator[PrivateServer]:
    with Tickwheel(tickwheel_server.url, namespace=NAMESPACE, shards=4, drive=False) as tickwheel:
        for name in ("listed", "jobs", "others", "streamed", "batched"):
            queue = tickwheel.create_queue(name)
            count = 100 if name == "others" else MESSAGES
            for start in range(0, count, 100):
                queue.enqueue_many(NewMessage(PAYLOAD, id=f"m{n}") for n in range(start, start + 100))
    yield tickwheel_server
    tickwheel_server.clear(NAMESPACE)


class Jobs:
    """An empty queue of the test."""

    def __init__(self, tickwheel: Tickwheel, name: str) -> None:
        self.name = name
        self._queue = tickwheel.create_queue(name)

    def enqueue(self, count: int) -> None:
        """Enqueue large messages, at most 100 at a time."""
        for start in range(0, count, 100):
            self._queue.enqueue_many(NewMessage(PAYLOAD) for _ in range(start, min(start + 100, count)))


@pytest.fixture
def jobs(server: PrivateServer) -> Iterator[Jobs]:
    with Tickwheel(server.url, namespace=NAMESPACE, drive=False) as tickwheel:
        yield Jobs(tickwheel, f"jobs-{uuid4().hex[:8]}")


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
        assert not service.server._answers.building.total


@pytest.fixture
def small(server: PrivateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceThread]:
    """A service in which the unread answers of one caller may have 8 MiB."""
    monkeypatch.setattr(limits, "ANSWERS_BYTES", 16 * MIB)
    monkeypatch.setattr(limits, "ANSWERS_AT_ONCE", 4 * MIB)
    here = f'namespaces = ["{NAMESPACE}"]\n'
    tokens = write_token_file(tmp_path, *(entry(token, '["consume"]', here) for token in (OTHER, HOSTILE)))
    with ServiceThread(server.url, tokens=tokens) as service:
        yield service


def test_unread_streams_take_no_more_than_their_share_and_go_on_when_their_client_reads(
    small: ServiceThread, record_property: Any
) -> None:
    held, listed = small.server._answers.bytes, {"namespace": NAMESPACE, "queue": "listed"}
    request = calls.DequeueStreamRequest(namespace=NAMESPACE, queue="streamed", credit=MESSAGES, lease_ms=3_600_000)
    with ExitStack() as stack:
        deaf = stack.enter_context(closing(DeafClient(small.target, HOSTILE)))
        deaf.call("DequeueStream", request, limits.STREAMS, is_open=True)
        eventually(lambda: held.total > 8 * MIB, "the share is full")
        # The other token leaves answers unread, too, and is not refused as long as it has less than its share.
        unread = stack.enter_context(closing(DeafClient(small.target, OTHER)))
        unread.call("ListMessages", calls.ListMessagesRequest(**listed), 3)
        channel = stack.enter_context(grpc.insecure_channel(small.target))
        other = generic_client(channel, OTHER)
        for _ in range(10):
            assert other.call("Dequeue", namespace=NAMESPACE, queue="others", limit=2)["deliveries"]
            assert other.call("ListMessages", **listed)["messages"]
        record_property("held_mib", round(held.total / MIB))
        # Streams that began at the same time have passed the check before their answers counted.
        assert held.total < 24 * MIB
        assert deaf.received == deaf.ended == unread.ended == 0

        deaf.listen()
        eventually(lambda: deaf.received > MESSAGES * len(PAYLOAD), "the streams have delivered all messages", 60)
        assert not deaf.ended


def test_streams_that_waited_for_messages_take_no_more_than_their_share(small: ServiceThread, jobs: Jobs) -> None:
    held = small.server._answers.bytes
    request = calls.DequeueStreamRequest(namespace=NAMESPACE, queue=jobs.name, credit=MESSAGES)
    with closing(DeafClient(small.target, HOSTILE)) as deaf:
        deaf.call("DequeueStream", request, 20, is_open=True)
        [namespace] = eventually(lambda: small.server.namespaces, "the namespace is open")
        eventually(lambda: namespace.wakeups.waiter_count == 20, "the streams wait")
        jobs.enqueue(MESSAGES)
        eventually(
            lambda: held.total > 8 * MIB and not namespace.wakeups.waiter_count,
            "the share is full, and no stream waits for messages",
        )
        assert held.total < 24 * MIB


@pytest.mark.parametrize("wait", ["a stream", "a dequeue"])
def test_a_caller_with_too_many_unread_answers_passes_its_wake_ups_on(
    small: ServiceThread, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, wait: str
) -> None:
    # No sweep wakes a waiter whose wake-up was lost.
    monkeypatch.setattr(wait_list, "SWEEP_S", 3_600)
    where: dict[str, Any] = {"namespace": NAMESPACE, "queue": jobs.name}
    held = small.server._answers.bytes
    with ExitStack() as stack:
        deaf = stack.enter_context(closing(DeafClient(small.target, HOSTILE)))
        if wait == "a stream":
            deaf.call("DequeueStream", calls.DequeueStreamRequest(**where, credit=1), 5, is_open=True)
        else:
            deaf.call("Dequeue", calls.DequeueRequest(**where, limit=1, wait_ms=600_000), 5)
        [namespace] = eventually(lambda: small.server.namespaces, "the namespace is open")
        eventually(lambda: namespace.wakeups.waiter_count == 5, "the calls wait")
        deaf.call("ListMessages", calls.ListMessagesRequest(namespace=NAMESPACE, queue="listed"), 50)
        eventually(lambda: deaf.ended and held.total > 8 * MIB, "a call is refused")
        other = stack.enter_context(closing(DeafClient(small.target, OTHER)))
        other.listen()
        other.call("Dequeue", calls.DequeueRequest(**where, wait_ms=600_000))
        eventually(lambda: namespace.wakeups.waiter_count == 6, "the other token waits")
        jobs.enqueue(1)
        eventually(lambda: other.ended, "the other token gets the message")
        assert other.received > len(PAYLOAD)


def test_a_paused_stream_ends_when_its_client_or_the_service_ends_it(small: ServiceThread) -> None:
    request = {"namespace": NAMESPACE, "queue": "jobs", "credit": 1}
    held = small.server._answers.bytes
    with ExitStack() as stack:
        deaf = stack.enter_context(closing(DeafClient(small.target, HOSTILE)))
        deaf.call("ListMessages", calls.ListMessagesRequest(namespace=NAMESPACE, queue="listed"), 50)
        eventually(lambda: deaf.ended and held.total > 8 * MIB, "a call is refused")
        channel = stack.enter_context(grpc.insecure_channel(small.target))
        hostile = generic_client(channel, HOSTILE)
        assert not list(hostile.stream("DequeueStream", iter([request]), 60))

        requests: SimpleQueue[Any] = SimpleQueue()
        stack.callback(requests.put, None)
        requests.put(request)
        stream = hostile.stream("DequeueStream", iter(requests.get, None), 60)
        in_flight = small.server.counters.methods["DequeueStream"]
        eventually(lambda: in_flight.in_flight == 1, "the stream is open")
        handlers = small.server._messages
        assert handlers is not None
        small._loop.call_soon_threadsafe(handlers.drain)
        with pytest.raises(grpc.RpcError) as stopped:
            list(stream)
        assert stopped.value.code() is grpc.StatusCode.UNAVAILABLE


def leased(client: GenericClient, queue: str) -> int:
    return int(client.call("GetCounts", namespace=NAMESPACE, queue=queue)["counts"]["running"])


def test_an_unread_response_of_a_batch_counts_once_also_while_it_waits_for_others(
    small: ServiceThread, jobs: Jobs
) -> None:
    answers = small.server._answers
    queues, each = ("batched", jobs.name), 20
    jobs.enqueue(each)
    request = calls.DequeueBatchRequest(
        requests=[
            calls.DequeueRequest(
                namespace=NAMESPACE, queue=queue, limit=each, request_id=f"b{queue}:1", first_attempt=True
            )
            for queue in queues
        ]
    )
    with ExitStack() as stack:
        other = generic_client(stack.enter_context(grpc.insecure_channel(small.target)), OTHER)
        deaf = stack.enter_context(closing(DeafClient(small.target, HOSTILE)))
        deaf.call("DequeueBatch", request)
        eventually(lambda: sum(leased(other, queue) for queue in queues) == 2 * each, "all are leased")
        expected = 2 * each * len(PAYLOAD)
        eventually(lambda: answers.bytes.total > expected, "both responses are counted")
        eventually(lambda: not answers.building.total, "both responses are written or wait for it")
        assert expected < answers.bytes.total < 1.1 * expected
    eventually(lambda: not answers.bytes.total, "the call has ended with its connection")


@pytest.mark.parametrize("method", ["DequeueBatch", "DequeueStream"])
def test_a_call_keeps_only_the_bytes_of_a_response_that_its_client_does_not_read(
    small: ServiceThread, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    split, responses = call_observer._split_response, []

    def recorded(method: Any, first: Any, response: Any) -> Any:
        responses.append(response)
        return split(method, first, response)

    def kept() -> list[object]:
        return [item for item in gc.get_objects() if isinstance(item, Dequeue | LeasedMessage)]

    monkeypatch.setattr(call_observer, "_split_response", recorded)
    jobs.enqueue(2)
    where: Any = {"namespace": NAMESPACE, "queue": jobs.name}
    requests = [calls.DequeueRequest(**where, request_id=f"kept{n}:1", first_attempt=True) for n in range(5)]
    request: Any = calls.DequeueBatchRequest(requests=requests)
    if method == "DequeueStream":
        request = calls.DequeueStreamRequest(**where, credit=2)
    before = len(kept())
    with closing(DeafClient(small.target, HOSTILE)) as deaf:
        deaf.call(method, request, is_open=method == "DequeueStream")
        eventually(lambda: small.server._answers.bytes.total > len(PAYLOAD), "a response is written")
        # Only the list and the argument are references to it.
        eventually(lambda: sys.getrefcount(responses[0]) == 2, "the response is not kept")
        eventually(lambda: len(kept()) == before, "no message and no dequeue is kept")
        assert small.server.counters.methods[method].in_flight == 1
        assert small.server._answers.bytes.total > len(PAYLOAD)


def test_unread_batches_of_many_requests_hold_bytes_however_short_they_are(small: ServiceThread, jobs: Jobs) -> None:
    held = small.server._call_limits.requests.bytes
    where: Any = {"queue": jobs.name, "namespace": NAMESPACE, "first_attempt": True}
    jobs.enqueue(1)
    with closing(DeafClient(small.target, HOSTILE)) as deaf:
        deaf.call("DequeueBatch", calls.DequeueBatchRequest(requests=[{**where, "request_id": "one:1"}]))
        eventually(lambda: small.server._answers.bytes.total > len(PAYLOAD), "the response is written")
        assert not held.total
        requests = [calls.DequeueRequest(**where, request_id=f"short{n}:1") for n in range(5)]
        deaf.call("DequeueBatch", calls.DequeueBatchRequest(requests=requests))
        eventually(lambda: held.total, "the call holds bytes")
    eventually(lambda: not held.total, "the call has ended with its connection")


def test_unread_batches_of_a_caller_stop_none_of_its_other_batches(
    server: PrivateServer, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CALLER_ITEMS", 20)
    monkeypatch.setattr(limits, "TURN_S", 0.02)
    batches, each = 12, 20
    jobs.enqueue(3 * batches)
    with ExitStack() as stack:
        service = stack.enter_context(ServiceThread(server.url))
        deaf = stack.enter_context(closing(DeafClient(service.target)))
        for n in range(batches):
            requests = [
                calls.DequeueRequest(
                    namespace=NAMESPACE, queue=jobs.name, request_id=f"unread{n}-{k}:1", first_attempt=True
                )
                for k in range(each)
            ]
            deaf.call("DequeueBatch", calls.DequeueBatchRequest(requests=requests))
        in_flight = service.server.counters.methods["DequeueBatch"]
        eventually(lambda: in_flight.in_flight == batches, "no client reads its answers")
        channel = stack.enter_context(grpc.insecure_channel(service.target))
        batch = {"namespace": NAMESPACE, "queue": "others", "messages": [{}] * each, "timeout": 20}
        for _ in range(10):
            assert len(generic_client(channel, "").call("EnqueueBatch", **batch)["results"]) == each
        assert in_flight.in_flight == batches


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
