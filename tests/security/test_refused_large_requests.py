"""What a call takes is free when the call has been refused or cancelled, before any garbage collection."""

import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from bench.harness.large_requests import SIZE, legal_requests
from bench.measurements.large_requests import memory_mb
from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, write_token_file
from tests.support.jobs_namespace import jobs_namespace
from tests.support.wait_until import eventually
from tickwheel import QueueNotFound, limits
from tickwheel.rpc.methods import METHODS
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

NAMESPACE = "refused"
READER, SLOW, FULL = "tw_reader-Of-Refused", "tw_slow-Of-Refused", "tw_full-Of-Refused"
REQUESTS = 50
# All requests have 200 MB.
KEPT_MB = 60
BATCH = next(request for _, name, request in legal_requests(NAMESPACE, "jobs", 0) if name == "EnqueueBatch")
# Repeats an unknown group.
MALFORMED = b"\xfb\x01\xfc\x01" * (SIZE // 4)


@pytest.fixture
def service(tickwheel_server: PrivateServer, tmp_path: Path) -> Iterator[ServiceThread]:
    everywhere = 'namespaces = ["*"]'
    tokens = write_token_file(
        tmp_path,
        entry(READER, '["read"]', everywhere),
        entry(SLOW, '["produce"]', f"{everywhere}\nmessages_per_second = 1"),
        entry(FULL, '["produce", "consume"]', everywhere),
    )
    with jobs_namespace(tickwheel_server, NAMESPACE), ServiceThread(tickwheel_server.url, tokens=tokens) as serving:
        yield serving


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def start(channel: Any, name: str, token: str, request: bytes) -> Any:
    """Send the request, and return the call."""
    method, metadata = METHODS[name], (("authorization", f"Bearer {token}"),)
    if method.client_streaming:
        return channel.stream_stream(method.path)(iter([request]), metadata=metadata, timeout=60)
    return channel.unary_unary(method.path).future(request, metadata=metadata, timeout=60)


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("token", "name", "request_bytes", "code"),
    [
        pytest.param(FULL, "Complete", MALFORMED, grpc.StatusCode.INVALID_ARGUMENT, id="invalid"),
        pytest.param(FULL, "EnqueueStream", MALFORMED, grpc.StatusCode.INVALID_ARGUMENT, id="invalid in a stream"),
        pytest.param(READER, "EnqueueBatch", BATCH, grpc.StatusCode.PERMISSION_DENIED, id="forbidden"),
        pytest.param(SLOW, "EnqueueBatch", BATCH, grpc.StatusCode.RESOURCE_EXHAUSTED, id="over the rate"),
    ],
)
def test_a_refused_large_request_is_freed_at_once(
    service: ServiceThread, token: str, name: str, request_bytes: bytes, code: grpc.StatusCode
) -> None:
    with grpc.insecure_channel(service.target) as channel:
        for _ in range(5):
            start(channel, name, token, request_bytes).code()
        at_rest = memory_mb(os.getpid(), "VmRSS")
        for _ in range(REQUESTS):
            assert start(channel, name, token, request_bytes).code() is code
        assert memory_mb(os.getpid(), "VmRSS") - at_rest < KEPT_MB


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("is_mixed", [False, True])
def test_the_errors_of_items_are_freed_at_once(service: ServiceThread, is_mixed: bool) -> None:
    lease = {"id": "0" * 20, "token": b"0" * 16}
    items: list[Any] = [{"lease": lease | {"queue_number": number}} for number in range(9_000, 9_099)]
    items.append({"lease": lease | {"queue_number": 1 if is_mixed else 9_099}})
    fail = METHODS["Fail"].request(namespace=NAMESPACE, queue="jobs", items=items).SerializeToString()
    code = grpc.StatusCode.OK if is_mixed else grpc.StatusCode.NOT_FOUND
    with grpc.insecure_channel(service.target) as channel:
        for _ in range(5):
            assert start(channel, "Fail", FULL, fail).code() is code
        assert not [error for error in gc.get_objects() if isinstance(error, QueueNotFound)]


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("name", ["EnqueueBatch", "EnqueueStream"])
def test_a_large_request_of_a_cancelled_call_is_freed_at_once(service: ServiceThread, name: str) -> None:
    requests = service.server._call_limits.requests
    turns = requests.turns(f"token {FULL[3:]!r}")
    for _ in range(limits.LARGE_REQUESTS):
        asyncio.run_coroutine_threadsafe(turns.acquire(), service._loop).result(20)

    with grpc.insecure_channel(service.target) as channel:

        def cancel_while_it_waits_for_its_turn() -> None:
            call = start(channel, name, FULL, BATCH)
            eventually(lambda: requests.bytes.total > 0, "the request has arrived")
            call.cancel()
            eventually(lambda: requests.bytes.total == 0, "the call has ended")

        for _ in range(5):
            cancel_while_it_waits_for_its_turn()
        at_rest = memory_mb(os.getpid(), "VmRSS")
        for _ in range(REQUESTS):
            cancel_while_it_waits_for_its_turn()
        assert memory_mb(os.getpid(), "VmRSS") - at_rest < KEPT_MB
