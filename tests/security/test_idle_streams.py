"""A stream that waits keeps none of its earlier requests and responses, each of which can have several MiB."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from tests.integration.service_thread import ServiceThread
from tests.support.wait_until import eventually
from tickwheel import Queue, Tickwheel
from tickwheel.rpc.methods import METHODS
from tickwheel.testing import PrivateServer
from tickwheel.v1 import message_service_pb2 as calls

pytestmark = pytest.mark.security


@pytest.fixture
def jobs(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Queue]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as direct:
        yield direct.create_queue("jobs")


@pytest.fixture
def service(tickwheel_server: PrivateServer, jobs: Queue) -> Iterator[ServiceThread]:
    with ServiceThread(tickwheel_server.url) as serving:
        yield serving


@contextmanager
def opened(service: ServiceThread, name: str) -> Iterator[tuple[Callable[[Any], None], Any]]:
    """Open a stream. Yield a function that sends a request, and the call. Requests and responses stay bytes, so that
    only the service makes objects of them.
    """
    requests: SimpleQueue[bytes | None] = SimpleQueue()
    with grpc.insecure_channel(service.target) as channel:
        method = METHODS[name]
        send: Any = channel.stream_stream(method.path) if method.server_streaming else channel.stream_unary(method.path)
        source = iter(requests.get, None)
        call = send(source, timeout=60) if method.server_streaming else send.future(source, timeout=60)
        try:
            yield lambda request: requests.put(request.SerializeToString()), call
        finally:
            requests.put(None)


def is_waiting(service: ServiceThread, name: str, *kinds: type) -> bool:
    """Return whether the stream is open, and the process has no object of the kinds."""
    is_open = service.server.counters.methods[name].in_flight == 1
    return is_open and not any(type(each) in kinds for each in gc.get_objects())


def has_pending(jobs: Queue, number: int) -> bool:
    return jobs.counts()["pending"] == number


def test_an_idle_stream_of_messages_keeps_no_request(service: ServiceThread, jobs: Queue, namespace: str) -> None:
    with opened(service, "EnqueueStream") as (send, call):
        for n in range(2):
            messages: list[Any] = [{"id": f"{n}-{m}", "payload": bytes(30_000)} for m in range(10)]
            send(calls.EnqueueStreamRequest(namespace=namespace, queue="jobs", messages=messages))
            eventually(partial(has_pending, jobs, 10 * (n + 1)), "the messages are enqueued")
            eventually(lambda: is_waiting(service, "EnqueueStream", calls.EnqueueStreamRequest), "no request is kept")
        assert not call.done()


def test_a_stream_without_credit_keeps_no_request(service: ServiceThread, namespace: str) -> None:
    with opened(service, "DequeueStream") as (send, call):
        request = calls.DequeueStreamRequest(namespace=namespace, queue="jobs", where={"region": "eu"}, worker="w")
        for _ in range(2):
            send(request)
        del request
        eventually(lambda: is_waiting(service, "DequeueStream", calls.DequeueStreamRequest), "no request is kept")
        assert call.is_active()


def test_a_stream_that_has_used_its_credit_keeps_no_response(
    service: ServiceThread, jobs: Queue, namespace: str
) -> None:
    kinds = calls.DequeueStreamRequest, calls.DequeueStreamResponse
    with opened(service, "DequeueStream") as (send, call):
        for n in range(2):
            jobs.enqueue(bytes(30_000), id=str(n))
            send(calls.DequeueStreamRequest(namespace=namespace, queue="jobs", credit=1))
            assert bytes(30_000) in next(call)
            eventually(lambda: is_waiting(service, "DequeueStream", *kinds), "nothing is kept")


def test_the_options_of_a_stream_are_checked_before_it_has_credit(service: ServiceThread, namespace: str) -> None:
    with opened(service, "DequeueStream") as (send, call):
        send(calls.DequeueStreamRequest(namespace=namespace, queue="jobs", worker="w" * 60_000))
        with pytest.raises(grpc.RpcError) as refused:
            next(call)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "worker" in (refused.value.details() or "")
