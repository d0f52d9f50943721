"""Requests of a hostile program: the service rejects invalid requests, and continues to serve."""

import os
import random
import socket
import struct
import threading
from collections.abc import Iterator
from itertools import chain
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tests.integration.service_thread import ServiceThread
from tests.security.http2 import PREFACE, SETTINGS, frame, headers, message
from tests.security.tokens import generic_client
from tests.support.wait_until import eventually
from tickwheel import Tickwheel, limits
from tickwheel.rpc.methods import METHODS, Method
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

STREAM_OF_BATCHES = headers("EnqueueStream")
SINGLE_REQUEST_METHODS = sorted(name for name, method in METHODS.items() if not method.client_streaming)
CLIENT_STREAMING_METHODS = sorted(METHODS.keys() - set(SINGLE_REQUEST_METHODS))
NAMESPACE = "service-requests"
# The codes with which a server reports its own bugs.
BUG_CODES = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED}
NUMBERS = (-(2**63), -(2**31), -1, 0, 1, 2, 5, 1_000, 2**31 - 1, 2**52, 2**53, 2**63 - 1)
TEXTS = (
    "",
    "a",
    "jobs",
    "{0}",
    "}{",
    "a b",
    "\0",
    "é" * 200,
    "x" * 5_000,
    "*",
    "capped",
    "drop",
    "s:1",
    "s:2",
    ":",
    "9:9",
)


@pytest.fixture(scope="module")
def service(real_time_service: ServiceThread, tickwheel_server: PrivateServer) -> Iterator[ServiceThread]:
    """The shared service, with a namespace and a queue."""
    with grpc.insecure_channel(real_time_service.target) as channel:
        generic_client(channel, "").call("OpenNamespace", namespace=NAMESPACE, shards=2)
        generic_client(channel, "").call("CreateQueue", namespace=NAMESPACE, queue="jobs")
    yield real_time_service
    tickwheel_server.clear(NAMESPACE)


@pytest.fixture
def channel(service: ServiceThread) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(service.target) as channel:
        yield channel
        # The service still serves.
        generic_client(channel, "").call("Enqueue", namespace=NAMESPACE, queue="well", message={})


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("path", ["/tickwheel.v1.MessageService/Enqueue", "/grpc.health.v1.Health/Check"])
def test_a_compressed_request_is_refused_before_it_arrives(
    channel: grpc.Channel, path: str, algorithm: grpc.Compression
) -> None:
    never = threading.Event()
    requests: Any = iter(never.wait, None)
    call: Any = channel.stream_unary(path)
    with pytest.raises(grpc.RpcError) as error:
        call(requests, timeout=20, compression=algorithm)
    never.set()
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "is disabled" in str(error.value.details())


def random_message(draw: random.Random, kind: Descriptor, depth: int = 0) -> dict[str, Any]:
    """Return a message whose fields have the right types and random values."""
    return {
        field.name: [value(draw, field, depth) for _ in range(draw.choice((0, 1, 3)))]
        if field.is_repeated and not (field.message_type and field.message_type.GetOptions().map_entry)
        else value(draw, field, depth)
        for field in kind.fields
        if depth < 3 and draw.random() < 0.6
    }


def value(draw: random.Random, field: FieldDescriptor, depth: int) -> Any:
    if field.message_type and field.message_type.GetOptions().map_entry:
        key, text = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return {value(draw, key, depth): value(draw, text, depth) for _ in range(draw.choice((0, 1, 3, 20)))}
    if field.message_type:
        return random_message(draw, field.message_type, depth + 1)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_BOOL:
            return draw.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            return draw.choice((0, 1, 2, 77, -1))
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return draw.randbytes(draw.choice((0, 16, 17, 1_000, 70_000)))
        case FieldDescriptor.CPPTYPE_STRING:
            return draw.choice(TEXTS)
        case FieldDescriptor.CPPTYPE_INT32:
            return draw.choice([number for number in NUMBERS if -(2**31) <= number < 2**31])
        case FieldDescriptor.CPPTYPE_UINT32:
            return draw.choice([0, 1, 2**32 - 1])
        case FieldDescriptor.CPPTYPE_INT64:
            return draw.choice(NUMBERS)
    raise NotImplementedError(field.full_name)


def sender(channel: grpc.Channel, method: Method, pack: Any = None) -> Any:
    """Return a function that sends one request and reads all responses."""
    if not method.server_streaming:
        return channel.unary_unary(method.path, pack, None)
    begin: Any = channel.unary_stream(method.path, pack, None)
    return lambda request, timeout: list(begin(request, timeout=timeout))


def code_of(send: Any, request: Any) -> tuple[grpc.StatusCode, str]:
    try:
        send(request, timeout=10)
    except grpc.RpcError as error:
        return error.code(), str(error.details())
    return grpc.StatusCode.OK, ""


@pytest.mark.parametrize("name", SINGLE_REQUEST_METHODS)
def test_an_invalid_request_is_refused_and_never_an_internal_error(channel: grpc.Channel, name: str) -> None:
    method = METHODS[name]
    send = sender(channel, method, method.request.SerializeToString)
    seed = f"{os.environ['TICKWHEEL_TEST_SEED']} {name}"
    draw = random.Random(seed)
    for _ in range(60):
        fields = random_message(draw, method.request.DESCRIPTOR)
        if draw.random() < 0.8:
            # DeleteNamespace would end the namespace of all other requests.
            fields |= {
                key: right
                for key, right in (("namespace", NAMESPACE), ("queue", "jobs"))
                if key in method.request.DESCRIPTOR.fields_by_name and method.name != "DeleteNamespace"
            }
        elif name == "OpenNamespace":
            fields["existing"] = True
        fields |= {"wait_ms": 5} if fields.get("wait_ms", 0) >= 5 else {}
        code, details = code_of(send, method.request(**fields))
        assert code not in BUG_CODES, f"seed {seed!r}: {fields}: {details}"


@pytest.mark.parametrize("name", SINGLE_REQUEST_METHODS)
def test_bytes_that_are_not_a_protobuf_message_are_refused(channel: grpc.Channel, name: str) -> None:
    send = sender(channel, METHODS[name])
    draw = random.Random(name)
    for size in (1, 7, 100, 10_000):
        code, details = code_of(send, b"\xff" + draw.randbytes(size))
        assert (code, "the request is not a valid" in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)


@pytest.mark.parametrize("name", ["Complete", "CreateQueue", "DequeueBatch", "EnqueueBatch"])
def test_a_message_that_is_too_large_is_refused(channel: grpc.Channel, name: str) -> None:
    code, _ = code_of(sender(channel, METHODS[name]), bytes(4 * 1024 * 1024 + 1))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("name", CLIENT_STREAMING_METHODS)
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"\xff" * 50, grpc.StatusCode.INVALID_ARGUMENT),
        (bytes(4 * 1024 * 1024 + 1), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
    ids=["malformed", "oversized"],
)
@pytest.mark.parametrize("place", ["first", "later"])
def test_a_stream_ends_at_an_invalid_message(
    channel: grpc.Channel, name: str, bad: bytes, code: grpc.StatusCode, place: str
) -> None:
    method = METHODS[name]
    good = method.request(namespace=NAMESPACE, queue="streamed").SerializeToString()
    requests = chain([good] if place == "later" else [], [bad], iter(threading.Event().wait, None))
    call: Any = channel.stream_stream(method.path, None, None)(requests, timeout=10)
    with pytest.raises(grpc.RpcError) as refused:
        list(call)
    assert refused.value.code() is code


def test_invalid_credit_ends_a_stream(channel: grpc.Channel) -> None:
    first_request = {"namespace": NAMESPACE, "queue": "streamed"}
    for credits in ([-1], [1_001], [0, -1], [1_000] * 11):
        requests: Any = chain(
            [first_request | {"credit": credit} for credit in credits], iter(threading.Event().wait, None)
        )
        with pytest.raises(grpc.RpcError) as refused:
            list(generic_client(channel, "").stream("DequeueStream", requests, timeout=10))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(range(256)) * 40,
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        PREFACE,
        PREFACE + SETTINGS + frame(1, 4, 1, STREAM_OF_BATCHES),
        PREFACE + SETTINGS + frame(1, 4, 1, STREAM_OF_BATCHES) + frame(0, 0, 1, b"\0\0\0\x10\0abc"),
        PREFACE + SETTINGS + frame(1, 4, 1, STREAM_OF_BATCHES) + frame(0, 0, 1, b"\0\xff\xff\xff\xff"),
        PREFACE + SETTINGS + frame(1, 4, 1, b"\xff" * 40),
    ],
    ids=[
        "HTTP/1",
        "no protocol",
        "half a TLS hello",
        "a preface alone",
        "a stream without a message",
        "half a message",
        "the start of a message of 4 GiB",
        "invalid headers",
    ],
)
def test_a_connection_that_breaks_during_a_request_affects_no_other(
    service: ServiceThread, channel: grpc.Channel, sent: bytes
) -> None:
    # The fixture `channel` checks afterwards that the service still serves.
    host, _, port = service.target.rpartition(":")
    for _ in range(20):
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(sent)


def test_a_message_whose_announced_size_is_too_large_is_refused_before_it_arrives(
    service: ServiceThread, channel: grpc.Channel
) -> None:
    announced = struct.pack(">BI", 0, limits.REQUEST_BYTES + 1)
    host, _, port = service.target.rpartition(":")
    received = b""
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(PREFACE + SETTINGS + frame(1, 4, 1, STREAM_OF_BATCHES) + frame(0, 0, 1, announced))
        while b"Received message larger than max" not in received:
            more = connection.recv(65_536)
            assert more
            received += more


def test_the_service_survives_a_flood_of_streams_that_are_reset_at_once(
    service: ServiceThread, tickwheel_server: PrivateServer
) -> None:
    flood = (frame(1, 4, 2 * n + 1, STREAM_OF_BATCHES) + frame(3, 0, 2 * n + 1, b"\0\0\0\x08") for n in range(200))
    sent = PREFACE + SETTINGS + b"".join(flood)
    with ServiceThread(tickwheel_server.url) as flooded:
        host, _, port = flooded.target.rpartition(":")
        for _ in range(20):
            with socket.create_connection((host, int(port)), 10) as connection:
                connection.sendall(sent)
        # During the flood, the gRPC library rejects calls, and clients retry them.
        with Tickwheel(flooded.url, namespace=NAMESPACE) as client:
            client.queues()


def test_an_interrupted_stream_of_batches_has_added_its_complete_batches(
    service: ServiceThread, channel: grpc.Channel
) -> None:
    request = METHODS["EnqueueStream"].request(namespace=NAMESPACE, queue="broken-off")
    request.messages.add(id="whole")
    whole = message(request)
    host, _, port = service.target.rpartition(":")
    anonymous = generic_client(channel, "")
    anonymous.call("CreateQueue", namespace=NAMESPACE, queue="broken-off")

    def pending() -> int:
        return int(anonymous.call("GetCounts", namespace=NAMESPACE, queue="broken-off")["counts"]["pending"])

    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(PREFACE + SETTINGS + frame(1, 4, 1, STREAM_OF_BATCHES) + frame(0, 0, 1, whole + whole[:9]))
        eventually(pending, "the first batch is enqueued")
    assert pending() == 1
