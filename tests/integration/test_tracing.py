"""Spans from enqueue to completion form one trace across all processes, over Redis and over the service."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from services.serving_program import SERVE, ServingProgram
from tests.integration.generic_client import GenericClient
from tests.integration.recorded_spans import Spans, id_of, links_of, parent_of, provider_of, trace_of
from tests.integration.service_thread import ServiceThread
from tests.support.wait_until import eventually
from tickwheel import LeaseLost, NewMessage, Tickwheel, aio, tracing
from tickwheel.testing import PrivateServer, sandbox
from tickwheel.v1 import message_pb2, message_service_pb2

pytestmark = pytest.mark.integration

ENDS_S = 30
SENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SERVICE = "tickwheel.v1.MessageService"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    with provider_of(monkeypatch) as exported:
        yield exported


@pytest.fixture
def direct(spans: Spans, tickwheel_server: PrivateServer) -> Iterator[Tickwheel]:
    with sandbox(tickwheel_server, shards=3) as (tickwheel, _):
        yield tickwheel


@pytest.fixture
def direct_client(direct: Tickwheel) -> Tickwheel:
    """The client that audits the namespace after a test."""
    return direct


@pytest.fixture
def traced_service(spans: Spans, direct: Tickwheel, tickwheel_server: PrivateServer) -> Iterator[ServiceThread]:
    """A service that is started with a provider of spans."""
    with ServiceThread(tickwheel_server.url, "_clock_test") as serving:
        yield serving


@pytest.fixture(params=["redis", "grpc"])
def tickwheel(request: pytest.FixtureRequest, direct: Tickwheel) -> Iterator[Tickwheel]:
    if request.param == "redis":
        yield direct
        return
    serving = request.getfixturevalue("traced_service")
    with Tickwheel(serving.url, namespace=direct._context.namespace) as client:
        yield client


@pytest.mark.parametrize("settings", [{}, {"exclusive_key": "of", "indexed": ["region"]}], ids=["plain", "exclusive"])
def test_a_message_is_sent_received_and_completed_in_one_trace(
    tickwheel: Tickwheel, spans: Spans, settings: dict[str, Any]
) -> None:
    queue = tickwheel.create_queue("orders", **settings)
    queue.enqueue(b"x", id="a", metadata={"of": "1", "region": "eu"})
    [message] = queue.dequeue(where={"region": "eu"})
    message.complete()
    sent, received, settled = (spans.one(f"{operation} orders") for operation in ("send", "receive", "complete"))
    assert len({trace_of(span) for span in (sent, received, settled)}) == 1
    assert [span.kind for span in (sent, received, settled)] == [SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CLIENT]
    assert links_of(received) == links_of(settled) == [id_of(sent)]
    assert dict(sent.attributes or {}) == {
        "messaging.system": "tickwheel",
        "messaging.destination.name": "orders",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.message.id": "a",
    }


def test_the_span_of_a_worker_belongs_to_the_trace_of_the_message_and_contains_the_calls_of_the_worker(
    tickwheel: Tickwheel, spans: Spans
) -> None:
    tickwheel.queue("orders").enqueue()
    [message] = tickwheel.queue("orders").dequeue()
    with tracing.processing(message):
        tickwheel.queue("mail").enqueue()
        message.fail("no")
    sent, processed = spans.one("send orders"), spans.one("process orders")
    assert (processed.kind, parent_of(processed)) == (SpanKind.CONSUMER, id_of(sent))
    assert parent_of(spans.one("send mail")) == parent_of(spans.one("fail orders")) == id_of(processed)


def test_an_exception_is_recorded_in_the_span_of_the_worker(tickwheel: Tickwheel, spans: Spans) -> None:
    tickwheel.queue("orders").enqueue()
    [message] = tickwheel.queue("orders").dequeue()
    with pytest.raises(ZeroDivisionError), tracing.processing(message):
        _ = 1 / 0
    processed = spans.one("process orders")
    assert processed.status.status_code is StatusCode.ERROR
    assert (processed.attributes or {})["error.type"] == "ZeroDivisionError"


def test_the_span_of_a_producer_is_a_child_of_the_current_span(tickwheel: Tickwheel, spans: Spans) -> None:
    with trace.get_tracer("test").start_as_current_span("checkout"):
        tickwheel.queue("orders").enqueue()
    assert parent_of(spans.one("send orders")) == id_of(spans.one("checkout"))


def test_a_batch_of_one_call_has_one_trace(tickwheel: Tickwheel, spans: Spans) -> None:
    queue = tickwheel.queue("orders")
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(20))
    queue.complete_many(queue.dequeue(20))
    sent, settled = spans.one("send orders"), spans.one("complete orders")
    assert trace_of(settled) == trace_of(sent)
    assert (sent.attributes or {})["messaging.batch.message_count"] == 20
    assert (settled.attributes or {})["messaging.batch.message_count"] == 20


def test_a_batch_of_several_traces_is_linked_to_each(tickwheel: Tickwheel, spans: Spans) -> None:
    queue = tickwheel.queue("orders")
    for _ in range(3):
        queue.enqueue()
    messages = queue.dequeue(10, consistency="exact")
    queue.complete_many(messages)
    sent = spans.by_name("send orders")
    for span in (spans.one("receive orders"), spans.one("complete orders")):
        assert sorted(links_of(span)) == sorted(map(id_of, sent))
        assert trace_of(span) not in map(trace_of, sent)


def test_a_dequeue_without_messages_makes_no_span(tickwheel: Tickwheel, spans: Spans) -> None:
    assert not tickwheel.queue("orders").dequeue()
    assert not spans.by_name("receive orders")


def test_a_message_repeated_from_another_span_is_no_conflict_and_stays_in_its_trace(
    tickwheel: Tickwheel, spans: Spans
) -> None:
    queue = tickwheel.queue("orders")
    assert queue.enqueue(b"x", id="a").created
    assert not queue.enqueue(b"x", id="a").created
    queue.dequeue()[0].complete()
    first, second = spans.by_name("send orders")
    assert trace_of(spans.one("complete orders")) == trace_of(first) != trace_of(second)


def test_a_trace_in_the_metadata_is_kept(tickwheel: Tickwheel, spans: Spans) -> None:
    tickwheel.queue("orders").enqueue(metadata={"traceparent": SENT})
    [message] = tickwheel.queue("orders").dequeue()
    assert message.metadata == {"traceparent": SENT}
    message.complete()
    assert trace_of(spans.one("complete orders")) == SENT.split("-")[1]


def test_an_invalid_trace_is_ignored(tickwheel: Tickwheel, spans: Spans) -> None:
    tickwheel.queue("orders").enqueue(metadata={"traceparent": "hello", "tracestate": "\0"})
    tickwheel.queue("orders").dequeue()[0].complete()
    assert not spans.one("complete orders").links


def test_a_refused_call_ends_its_span_with_the_error(tickwheel: Tickwheel, spans: Spans) -> None:
    tickwheel.queue("orders").enqueue()
    [message] = tickwheel.queue("orders").dequeue()
    message.complete()
    with pytest.raises(LeaseLost):
        message.fail()
    failed = spans.one("fail orders")
    assert (failed.attributes or {})["error.type"] == "LeaseLost"
    assert failed.status.status_code is StatusCode.ERROR


def test_tasks_have_spans_of_their_own(direct: Tickwheel, traced_service: ServiceThread, spans: Spans) -> None:
    async def in_a_trace(tickwheel: aio.Tickwheel, n: int) -> None:
        with trace.get_tracer("test").start_as_current_span(f"task {n}"):
            await tickwheel.queue(f"q{n}").enqueue()
            [message] = await tickwheel.queue(f"q{n}").dequeue()
            await message.complete()

    async def program() -> None:
        async with aio.Tickwheel(traced_service.url, namespace=direct._context.namespace) as tickwheel:
            await asyncio.gather(*(in_a_trace(tickwheel, n) for n in range(5)))

    asyncio.run(program())
    for n in range(5):
        of_task = {trace_of(spans.one(name)) for name in (f"task {n}", f"send q{n}", f"receive q{n}", f"complete q{n}")}
        assert len(of_task) == 1


def test_the_service_is_part_of_the_trace(direct: Tickwheel, traced_service: ServiceThread, spans: Spans) -> None:
    with Tickwheel(traced_service.url, namespace=direct._context.namespace) as tickwheel:
        tickwheel.queue("orders").enqueue()
        tickwheel.queue("orders").dequeue()[0].complete()
    sent, enqueued = spans.one("send orders"), spans.one(f"{SERVICE}/EnqueueBatch")
    settled, completed = spans.one("complete orders"), spans.one(f"{SERVICE}/Complete")
    assert (parent_of(enqueued), parent_of(completed)) == (id_of(sent), id_of(settled))
    assert len({trace_of(span) for span in (sent, enqueued, settled, completed)}) == 1
    assert links_of(spans.one(f"{SERVICE}/Dequeue")) == [id_of(sent)]
    assert enqueued.kind is SpanKind.SERVER
    assert dict(enqueued.attributes or {}) == {
        "rpc.system.name": "grpc",
        "rpc.method": f"{SERVICE}/EnqueueBatch",
        "rpc.response.status_code": "OK",
    }


@pytest.mark.parametrize("method", ["Enqueue", "EnqueueBatch", "EnqueueStream"])
def test_a_call_of_another_grpc_client_puts_its_messages_into_the_trace_of_the_call(
    direct: Tickwheel, traced_service: ServiceThread, spans: Spans, method: str
) -> None:
    new = message_pb2.NewMessage(id="a", metadata={"region": "eu"})
    named = {"namespace": direct._context.namespace, "queue": "orders"}
    body = {"message": new} if method == "Enqueue" else {"messages": [new]}
    request = getattr(message_service_pb2, f"{method}Request")(**named, **body)
    kind = getattr(message_service_pb2, f"{method}Response").FromString
    with grpc.insecure_channel(traced_service.target) as channel:
        kinds = {"request_serializer": type(request).SerializeToString, "response_deserializer": kind}
        if method == "EnqueueStream":
            channel.stream_unary(f"/{SERVICE}/{method}", **kinds)(iter([request]), metadata=(("traceparent", SENT),))
        else:
            channel.unary_unary(f"/{SERVICE}/{method}", **kinds)(request, metadata=(("traceparent", SENT),))
    direct.queue("orders").dequeue(where={"region": "eu"})[0].complete()
    assert trace_of(spans.one("complete orders")) == SENT.split("-")[1]
    assert parent_of(spans.one("complete orders")) == id_of(spans.one(f"{SERVICE}/{method}"))


def test_batched_requests_have_a_span_linked_to_their_messages(
    direct: Tickwheel, traced_service: ServiceThread, spans: Spans
) -> None:
    direct.queue("orders").enqueue()
    fields = {"namespace": direct._context.namespace, "queue": "orders", "first_attempt": True}
    requests = [fields | {"request_id": f"slot-{n}:1"} for n in range(3)]
    with grpc.insecure_channel(traced_service.target) as channel:
        assert GenericClient(channel).call_for_many("DequeueBatch", requests=requests)
    eventually(lambda: spans.by_name(f"{SERVICE}/DequeueBatch"), "the span of the dequeue has ended")
    assert links_of(spans.one(f"{SERVICE}/DequeueBatch")) == [id_of(spans.one("send orders"))]


def test_in_a_program_with_spans_polls_are_not_batched(
    direct: Tickwheel, traced_service: ServiceThread, spans: Spans
) -> None:
    async def poll() -> None:
        async with aio.Tickwheel(traced_service.url, namespace=direct._context.namespace) as tickwheel:
            await asyncio.gather(*(tickwheel.queue("orders").dequeue() for _ in range(3)))

    asyncio.run(poll())
    eventually(lambda: len(spans.by_name(f"{SERVICE}/Dequeue")) == 3, "the spans of the polls have ended")
    assert not spans.by_name(f"{SERVICE}/DequeueBatch")


PRODUCER = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tickwheel import Tickwheel
trace.set_tracer_provider(TracerProvider())
with Tickwheel(sys.argv[1], namespace=sys.argv[2]) as tickwheel:
    with trace.get_tracer("shop").start_as_current_span("checkout") as span:
        tickwheel.queue("orders").enqueue(b"x", id="a")
        print(trace.format_trace_id(span.get_span_context().trace_id))
"""


def test_a_message_of_one_program_is_completed_by_another_in_its_trace(
    direct: Tickwheel, tickwheel_server: PrivateServer, spans: Spans
) -> None:
    # The client has no test clock, because the other program has none.
    namespace = f"{direct._context.namespace}-two"
    try:
        command = [sys.executable, "-c", PRODUCER, tickwheel_server.url, namespace]
        printed = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_S, check=True).stdout.strip()
        with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
            tickwheel.queue("orders").dequeue()[0].complete()
        assert trace_of(spans.one("complete orders")) == printed
    finally:
        tickwheel_server.clear(namespace)


OFF = """
import json, sys
from tickwheel import Tickwheel, tracing
if sys.argv[3] == "imported":
    import opentelemetry.trace
with Tickwheel(sys.argv[1], namespace=sys.argv[2]) as tickwheel:
    tickwheel.queue("orders").enqueue()
    [message] = tickwheel.queue("orders").dequeue()
    with tracing.processing(message):
        message.complete()
print(json.dumps([message.metadata, "tickwheel.telemetry.spans" in sys.modules]))
"""


@pytest.mark.parametrize("api", ["imported", "not imported"])
def test_without_a_provider_no_trace_is_stored_and_no_span_is_made(
    tickwheel_server: PrivateServer, direct: Tickwheel, api: str
) -> None:
    namespace = f"{direct._context.namespace}-off"
    try:
        command = [sys.executable, "-c", OFF, tickwheel_server.url, namespace, api]
        printed = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_S, check=True).stdout
        assert json.loads(printed) == [{}, False]
    finally:
        tickwheel_server.clear(namespace)


def test_threads_have_spans_of_their_own(tickwheel: Tickwheel, spans: Spans) -> None:
    def work(n: int) -> None:
        with trace.get_tracer("test").start_as_current_span(f"thread {n}"):
            tickwheel.queue(f"q{n}").enqueue()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(5):
        assert parent_of(spans.one(f"send q{n}")) == id_of(spans.one(f"thread {n}"))


@pytest.mark.parametrize("processes", ["1", "2"])
def test_serve_traces_if_its_environment_sets_a_provider(
    direct: Tickwheel, tickwheel_server: PrivateServer, processes: str, tmp_path: Path
) -> None:
    namespace = f"{direct._context.namespace}-served"
    command = [*SERVE, tickwheel_server.url, "--processes", processes]
    environment = {"OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"}
    with (
        ServingProgram(tmp_path, *command, environment=environment) as service,
        Tickwheel(service.url, namespace=namespace) as tickwheel,
        grpc.insecure_channel(service.target) as channel,
    ):
        enqueue = channel.unary_unary(
            f"/{SERVICE}/Enqueue",
            message_service_pb2.EnqueueRequest.SerializeToString,
            message_service_pb2.EnqueueResponse.FromString,
        )
        request = message_service_pb2.EnqueueRequest(namespace=namespace, queue="orders")
        enqueue(request, metadata=(("traceparent", SENT),))
        [message] = tickwheel.queue("orders").dequeue()
    tickwheel_server.clear(namespace)
    _, trace_id, span_id, _ = message.metadata["traceparent"].split("-")
    assert trace_id == SENT.split("-")[1]
    assert span_id != SENT.split("-")[2]
