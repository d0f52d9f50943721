"""The metrics of a service process about its calls, queues and streams."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import grpc
import pytest
from prometheus_client import CollectorRegistry

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.support.wait_until import eventually, eventually_in_task
from tickwheel import InvalidArgument, NewMessage, Tickwheel, aio
from tickwheel.service import counters
from tickwheel.service.metrics import ServiceMetrics
from tickwheel.telemetry.metrics_server import registry_of
from tickwheel.testing import PrivateServer, sandbox
from tickwheel.v1 import message_pb2, message_service_pb2

pytestmark = pytest.mark.integration

T = TypeVar("T")
SERVICE = "tickwheel.v1.MessageService"


@pytest.fixture
def direct(tickwheel_server: PrivateServer) -> Iterator[Tickwheel]:
    with sandbox(tickwheel_server) as (tickwheel, _):
        yield tickwheel


@pytest.fixture
def serving(direct: Tickwheel, tickwheel_server: PrivateServer) -> Iterator[ServiceThread]:
    with ServiceThread(tickwheel_server.url, "_clock_test") as service:
        yield service


@pytest.fixture
def registry(serving: ServiceThread) -> CollectorRegistry:
    return registry_of(ServiceMetrics(serving.server))


@pytest.fixture
def tw(direct: Tickwheel, serving: ServiceThread) -> Iterator[Tickwheel]:
    with Tickwheel(serving.url, namespace=direct._context.namespace) as client:
        yield client


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(f"tickwheel_service_{name}", labels) or 0


def are_parked(registry: CollectorRegistry, count: int) -> bool:
    return value(registry, "parked_calls") == count


def test_calls_are_counted_by_method_and_code(tw: Tickwheel, registry: CollectorRegistry) -> None:
    tw.queue("q").enqueue(id="m")
    tw.queue("q").counts()
    tw.queue("q").counts()
    assert tw.queue("q").dequeue()
    indexed = tw.create_queue("x", indexed=["a"])
    with pytest.raises(InvalidArgument):
        indexed.dequeue(where={"b": "c"})
    eventually(
        lambda: value(registry, "calls_total", method="Dequeue", code="INVALID_ARGUMENT") == 1,
        "the refused call is counted",
    )
    assert value(registry, "calls_total", method="GetCounts", code="OK") == 2
    assert value(registry, "calls_total", method="Dequeue", code="OK") == 1
    assert value(registry, "call_seconds_count", method="Dequeue") == 2
    assert 0 < value(registry, "call_seconds_sum", method="Dequeue") < 20


def test_operations_on_messages_are_counted_by_queue(tw: Tickwheel, registry: CollectorRegistry) -> None:
    queue = tw.queue("jobs")
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(5))
    queue.enqueue(id="m0")
    queue.cancel("m0")
    messages = queue.dequeue(10)
    messages[0].fail()
    messages[1].release()
    queue.complete_many(messages[2:])
    labels = {"namespace": tw._context.namespace, "queue": "jobs"}
    assert value(registry, "enqueued_messages_total", **labels) == 5
    assert value(registry, "delivered_messages_total", **labels) == 4
    assert value(registry, "completed_messages_total", **labels) == 2
    assert value(registry, "failed_messages_total", **labels) == 1
    assert value(registry, "released_messages_total", **labels) == 1
    assert value(registry, "cancelled_messages_total", **labels) == 1


def test_the_number_of_queues_with_metrics_of_their_own_is_limited(
    tw: Tickwheel, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "QUEUES", 2)
    for n in range(5):
        tw.queue(f"q{n}").enqueue()
    for namespace, queue, count in (
        (tw._context.namespace, "q0", 1),
        (tw._context.namespace, "q2", 0),
        (*counters.OTHER_QUEUES, 3),
    ):
        assert value(registry, "enqueued_messages_total", namespace=namespace, queue=queue) == count


def test_calls_that_concern_no_message_take_no_place_of_a_queue_that_exists(
    tw: Tickwheel, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "QUEUES", 1)
    tw.create_queue("empty")
    for name in ("missing", "another", "empty"):
        assert tw.queue(name).dequeue() == []
    tw.queue("real").enqueue()
    assert value(registry, "enqueued_messages_total", namespace=tw._context.namespace, queue="real") == 1
    tw.queue("real").dequeue()
    assert value(registry, "delivered_messages_total", namespace=tw._context.namespace, queue="real") == 1


def test_a_refused_call_names_no_queue(tw: Tickwheel, registry: CollectorRegistry) -> None:
    with pytest.raises(InvalidArgument):
        tw.queue("junk").enqueue_many([NewMessage(max_attempts=0)])
    assert not [sample for metric in registry.collect() for sample in metric.samples if "queue" in sample.labels]


def test_waiting_dequeues_are_counted_as_parked_and_woken(
    direct: Tickwheel, serving: ServiceThread, registry: CollectorRegistry
) -> None:
    async def program() -> None:
        async with aio.Tickwheel(serving.url, namespace=direct._context.namespace) as tickwheel:
            queue = tickwheel.queue("q")
            waiting = [asyncio.create_task(queue.dequeue(wait=timedelta(minutes=1))) for _ in range(3)]
            await eventually_in_task(
                lambda: sum(namespace.wakeups.waiter_count for namespace in serving.server.namespaces) == 3,
                "three wait",
            )
            assert value(registry, "parked_calls") == value(registry, "calls_in_flight", method="Dequeue") == 3
            before = value(registry, "wake_ups_total")
            await queue.enqueue_many([NewMessage(), NewMessage(), NewMessage()])
            await asyncio.gather(*waiting)
            assert value(registry, "parked_calls") == value(registry, "calls_in_flight", method="Dequeue") == 0
            assert value(registry, "wake_ups_total") >= before + 3

    asyncio.run(program())


def test_every_call_that_takes_a_place_of_the_waiting_calls_is_counted_as_parked(
    direct: Tickwheel, serving: ServiceThread, registry: CollectorRegistry
) -> None:
    namespace = direct._context.namespace
    direct.queue("q").enqueue(id="later", delay=timedelta(hours=1))
    calls: dict[str, Any] = {
        "Dequeue": message_service_pb2.DequeueRequest(namespace=namespace, queue="q", wait_ms=60_000),
        "AwaitMessages": message_service_pb2.AwaitMessagesRequest(namespace=namespace, queues=["q"], wait_ms=60_000),
        "GetMessage": message_service_pb2.GetMessageRequest(namespace=namespace, queue="q", id="later", wait_ms=60_000),
        "DequeueStream": message_service_pb2.DequeueStreamRequest(namespace=namespace, queue="q", credit=1),
    }
    stays_open = threading.Event()
    with grpc.insecure_channel(serving.target) as channel:
        waiting: list[Any] = []
        for parked, (method, request) in enumerate(calls.items(), 1):
            call: Any = channel.stream_stream(f"/{SERVICE}/{method}", type(request).SerializeToString)
            waiting.append(call(_until(stays_open, request) if method == "DequeueStream" else iter([request])))
            eventually(partial(are_parked, registry, parked), f"{method} is parked")
        for call in waiting:
            call.cancel()
        stays_open.set()
        eventually(partial(are_parked, registry, 0), "no call is parked")


def test_a_client_that_leaves_is_not_counted_as_an_error(
    direct: Tickwheel, serving: ServiceThread, registry: CollectorRegistry
) -> None:
    async def program() -> None:
        async with aio.Tickwheel(serving.url, namespace=direct._context.namespace) as tickwheel:
            waiting = asyncio.create_task(tickwheel.queue("q").dequeue(wait=timedelta(minutes=1)))
            await eventually_in_task(lambda: value(registry, "parked_calls") == 1, "it is parked")
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting

    asyncio.run(program())
    eventually(lambda: value(registry, "calls_total", method="Dequeue", code="CANCELLED") == 1, "the client has left")
    assert value(registry, "parked_calls") == 0


def test_streams_are_counted_while_they_are_open(
    direct: Tickwheel, serving: ServiceThread, registry: CollectorRegistry
) -> None:
    named = {"namespace": direct._context.namespace, "queue": "q"}
    with grpc.insecure_channel(serving.target) as channel:
        enqueue = channel.stream_unary(
            f"/{SERVICE}/EnqueueStream",
            message_service_pb2.EnqueueStreamRequest.SerializeToString,
            message_service_pb2.EnqueueStreamResponse.FromString,
        )
        parts = [[message_pb2.NewMessage(id=f"{n}-{m}") for m in range(4)] for n in range(3)]
        enqueue(iter(message_service_pb2.EnqueueStreamRequest(**named, messages=part) for part in parts))
        dequeue = channel.stream_stream(
            f"/{SERVICE}/DequeueStream",
            message_service_pb2.DequeueStreamRequest.SerializeToString,
            message_service_pb2.DequeueStreamResponse.FromString,
        )
        stream_request = message_service_pb2.DequeueStreamRequest(namespace=named["namespace"], queue="q", credit=5)
        stays_open = threading.Event()
        stream = dequeue(_until(stays_open, stream_request))
        delivered = 0
        for response in stream:
            assert value(registry, "calls_in_flight", method="DequeueStream") == 1
            delivered += len(response.deliveries)
            if delivered == 5:
                break
        stream.cancel()
        stays_open.set()
    labels = {"namespace": direct._context.namespace, "queue": "q"}
    assert value(registry, "enqueued_messages_total", **labels) == 12
    assert value(registry, "delivered_messages_total", **labels) == 5
    eventually(lambda: value(registry, "calls_in_flight", method="DequeueStream") == 0, "the stream has ended")


def test_the_messages_of_a_stream_are_counted_under_the_queue_of_each_request(
    direct: Tickwheel, serving: ServiceThread, registry: CollectorRegistry
) -> None:
    direct.create_queue("other")
    namespace = direct._context.namespace
    requests: list[dict[str, Any]] = [
        {"namespace": namespace, "queue": "q", "messages": [{"id": "a"}, {"id": "b"}, {"id": "b"}]},
        {"queue": "other", "messages": [{"id": str(n)} for n in range(5)]},
        {"messages": [{"id": "c"}]},
        {"queue": "other", "messages": [{"id": "0"}]},
    ]
    with grpc.insecure_channel(serving.target) as channel:
        assert GenericClient(channel).send_many("EnqueueStream", requests)["created"] == "8"
    assert value(registry, "enqueued_messages_total", namespace=namespace, queue="q") == 3
    assert value(registry, "enqueued_messages_total", namespace=namespace, queue="other") == 5


def _until(ended: threading.Event, *requests: T) -> Iterator[T]:
    """Yield the requests of a stream that stays open."""
    yield from requests
    ended.wait(60)


def test_concurrent_enqueues_are_counted_as_groups(
    direct: Tickwheel, serving: ServiceThread, registry: CollectorRegistry
) -> None:
    async def program() -> None:
        async with grpc.aio.insecure_channel(serving.target) as channel:
            enqueue = channel.unary_unary(
                f"/{SERVICE}/Enqueue",
                message_service_pb2.EnqueueRequest.SerializeToString,
                message_service_pb2.EnqueueResponse.FromString,
            )
            request = message_service_pb2.EnqueueRequest(namespace=direct._context.namespace, queue="q")
            await asyncio.gather(*(enqueue(request) for _ in range(50)))

    asyncio.run(program())
    assert value(registry, "enqueue_group_messages_sum") == 50
    assert value(registry, "enqueue_group_messages_count") < 50
    assert value(registry, "namespaces") == 1
