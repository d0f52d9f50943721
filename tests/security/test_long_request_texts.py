"""Requests whose texts are far longer than any valid one: the service quotes little of them in its answers and log."""

import io
import logging
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict

from tests.integration.service_thread import ServiceThread
from tests.security.test_permissions import FIELDS, place
from tests.security.tokens import entry_with_grants, generic_client, grant, write_token_file
from tickwheel.rpc.methods import METHODS, Method
from tickwheel.runtime.log_format import JsonLines, TextLines
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

NAMESPACE: Final = "long-texts"
TEXT: Final = "\0é'\U0001f600"
# Some RPCs accept requests of 64 KiB at most, and others of 4 MiB.
LENGTHS: Final = (50_000, 1_000_000)
# By default, gRPC clients lose a status that is larger.
STATUS_BYTES: Final = 8 * 1024
LINE_BYTES: Final = 8 * 1024
PERMITTED, REFUSED = "tw_permitted", "tw_refused"
_STRING: Final = FieldDescriptor.CPPTYPE_STRING


@pytest.fixture(scope="module")
def service(tickwheel_server: PrivateServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceThread]:
    roles = ["produce", "consume", "admin"]
    tokens = write_token_file(
        tmp_path_factory.mktemp("tokens"),
        entry_with_grants(PERMITTED, grant(roles, ["*"], ["*"])),
        entry_with_grants(REFUSED, grant(roles, ["other"], ["other"])),
    )
    with ServiceThread(tickwheel_server.url, tokens=tokens) as serving:
        with grpc.insecure_channel(serving.target) as channel:
            admin = generic_client(channel, PERMITTED)
            admin.call("OpenNamespace", namespace=NAMESPACE)
            admin.call("CreateQueue", namespace=NAMESPACE, queue="jobs", settings={"forecast": True})
            admin.call("Enqueue", namespace=NAMESPACE, queue="jobs", message={"id": "kept", "delay_ms": 3_600_000})
        yield serving
    tickwheel_server.clear(NAMESPACE)


@pytest.fixture
def channel(service: ServiceThread) -> Iterator[grpc.Channel]:
    """A channel that receives a status of any size."""
    sizes = ("grpc.max_metadata_size", "grpc.absolute_max_metadata_size")
    with grpc.insecure_channel(service.target, options=[(name, 64 * 1024 * 1024) for name in sizes]) as channel:
        yield channel


@pytest.fixture
def log() -> Iterator[list[io.StringIO]]:
    """The log of the service, with DEBUG, in each format."""
    logger, handlers = logging.getLogger("tickwheel"), []
    for formatter in (JsonLines(), TextLines("%(message)s")):
        handlers.append(logging.StreamHandler(io.StringIO()))
        handlers[-1].setFormatter(formatter)
        logger.addHandler(handlers[-1])
    level = logger.level
    logger.setLevel(logging.DEBUG)
    yield [handler.stream for handler in handlers]
    logger.setLevel(level)
    for handler in handlers:
        logger.removeHandler(handler)


def long_texts(kind: Descriptor, usual: dict[str, Any], length: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield, for each field of text or bytes, its path and the usual fields of a request with a value of ``length``
    bytes.
    """
    long = TEXT * (length // len(TEXT.encode()))
    for field in kind.fields:
        name = field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
            if key.cpp_type == _STRING:
                yield f"{name} key", usual | {name: {long: "value"}}
            if value.cpp_type == _STRING:
                yield f"{name} value", usual | {name: {"key" if key.cpp_type == _STRING else "0": long}}
        elif field.message_type is not None:
            present = usual.get(name, {})
            inner = (present[0] if present else {}) if field.is_repeated else present
            for path, fields in long_texts(field.message_type, inner, length):
                yield f"{name}.{path}", usual | {name: [fields] if field.is_repeated else fields}
        elif field.cpp_type == _STRING:
            # JSON has bytes as base64.
            text = "AAAA" * (length // 3) if field.type == FieldDescriptor.TYPE_BYTES else long
            yield name, usual | {name: [text] if field.is_repeated else text}


def usual_fields(name: str) -> dict[str, Any]:
    fields = place(name, NAMESPACE, "jobs") | FIELDS[name]
    return {"requests": [fields]} if name == "DequeueBatch" else fields


def call(channel: grpc.Channel, token: str, method: Method, fields: dict[str, Any]) -> grpc.RpcError | None:
    """Call the RPC with one request, and return the error."""
    begin: Any = channel.stream_stream(method.path, method.request.SerializeToString, None)
    request = ParseDict(fields, method.request())
    try:
        list(begin(iter([request]), metadata=(("authorization", f"Bearer {token}"),), timeout=20))
    except grpc.RpcError as error:
        return error
    return None


def status_bytes(error: Any) -> int:
    """Return the size of the status on the wire."""
    return len(quote(error.details(), safe=" ")) + sum(len(value) * 4 // 3 for _, value in error.trailing_metadata())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", METHODS)
def test_an_error_and_its_log_lines_are_short_however_long_a_text_of_the_request_is(
    name: str, length: int, channel: grpc.Channel, log: list[io.StringIO]
) -> None:
    method = METHODS[name]
    for token in (REFUSED, PERMITTED):
        refusals = {}
        for path, fields in long_texts(method.request.DESCRIPTOR, usual_fields(name), length):
            error: Any = call(channel, token, method, fields)
            if error is not None:
                assert status_bytes(error) < STATUS_BYTES, path
                assert error.code() not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL), path
                refusals[path] = error.code()
        assert "namespace" in refusals or name == "DequeueBatch"
        if token == REFUSED and name != "DequeueBatch":
            assert set(refusals.values()) <= {
                grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.PERMISSION_DENIED,
            }
    for stream in log:
        assert max(map(len, stream.getvalue().encode().splitlines()), default=0) < LINE_BYTES


def test_every_text_of_a_request_is_tried() -> None:
    """The walk over the fields finds texts in lists, in maps and in inner messages."""
    batch = {path for path, _ in long_texts(METHODS["EnqueueBatch"].request.DESCRIPTOR, {}, 1_000)}
    assert {"namespace", "queue", "messages.id", "messages.payload", "messages.metadata key"} <= batch
    assert "settings.sink" in {path for path, _ in long_texts(METHODS["CreateQueue"].request.DESCRIPTOR, {}, 1_000)}
    assert "results value" in {path for path, _ in long_texts(METHODS["Complete"].request.DESCRIPTOR, {}, 1_000)}
    assert "ids" in {path for path, _ in long_texts(METHODS["Cancel"].request.DESCRIPTOR, {}, 1_000)}


def test_an_invalid_namespace_is_named_to_a_token_without_rights(channel: grpc.Channel) -> None:
    fields = usual_fields("GetQueue") | {"namespace": TEXT * 1_000}
    error: Any = call(channel, REFUSED, METHODS["GetQueue"], fields)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().startswith("namespace must have 1 to 64 letters")
