"""Answers that no Tickwheel service gives: each call ends in time, with an error of Tickwheel."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from tests.integration.blocking_aio import blocking_aio
from tickwheel import LimitExceeded, NewMessage, Tickwheel, TickwheelError, aio
from tickwheel.model.message import LeasedMessage
from tickwheel.rpc.methods import METHODS
from tickwheel.rpc.status import DETAILS
from tickwheel.v1 import message_service_pb2 as calls, queue_service_pb2 as admin

pytestmark = pytest.mark.security

# A call that waits or retries for longer fails the test.
TIMEOUT = timedelta(seconds=2)
# For the response of 301 MiB: on a busy machine, the hostile service alone can need more than TIMEOUT to send it.
LONG_TIMEOUT = timedelta(seconds=30)
UNPARSABLE = b"\xff\xff\xff"
BATCH = METHODS["DequeueBatch"].path
Answer = bytes | Callable[[Any], bytes]


class HostileService(grpc.GenericRpcHandler):
    """A gRPC server that answers each call, except OpenNamespace, with ``answer``: the bytes of a response, or a
    function that ends the call with a status. It answers DequeueBatch with ``batch_answer``.
    """

    def __init__(self) -> None:
        self.answer: Answer = b""
        self.batch_answer = b""
        self.calls: list[str] = []
        self._server = grpc.server(ThreadPoolExecutor(4), handlers=[self])
        self.url = f"grpc://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method
        if path == METHODS["OpenNamespace"].path:
            opened = admin.OpenNamespaceResponse(shards=1).SerializeToString()
            return grpc.unary_unary_rpc_method_handler(lambda request, context: opened)

        def answer(request: bytes, context: Any) -> bytes:
            self.calls.append(path)
            return self.answer(context) if callable(self.answer) else self.answer

        if path == BATCH:
            self.calls.append(path)
            return grpc.unary_stream_rpc_method_handler(lambda request, context: iter([self.batch_answer]))
        return grpc.unary_unary_rpc_method_handler(answer)

    def close(self) -> None:
        self._server.stop(0).wait()


@pytest.fixture
def hostile() -> Iterator[HostileService]:
    service = HostileService()
    yield service
    service.close()


@pytest.fixture(params=[Tickwheel, blocking_aio], ids=["blocking", "asyncio"])
def client(request: pytest.FixtureRequest, hostile: HostileService, timeout: timedelta) -> Iterator[Any]:
    with request.param(hostile.url, namespace="any", timeout=timeout) as tickwheel:
        yield tickwheel


@pytest.fixture
def timeout() -> timedelta:
    return TIMEOUT


def failing(code: grpc.StatusCode, details: bytes) -> Answer:
    """Return an answer that ends a call with a status, and with these details in its trailing metadata."""

    def answer(context: Any) -> bytes:
        context.set_trailing_metadata(((DETAILS, details),))
        context.abort(code, "no")
        return b""

    return answer


def details_of(reason: str, **attributes: str) -> bytes:
    status = Status(code=8, message="no")
    status.details.add().Pack(ErrorInfo(reason=reason, domain="tickwheel", metadata=attributes))
    raw: bytes = status.SerializeToString()
    return raw


DEQUEUED = calls.DequeueResponse(
    deliveries=[{"lease": {"id": "m", "token": bytes(16), "queue_number": 1, "attempt": 1}}]
).SerializeToString()


@pytest.mark.parametrize(
    "call",
    [
        lambda tickwheel: tickwheel.queue("jobs").enqueue(b""),
        lambda tickwheel: tickwheel.queue("jobs").enqueue_many([NewMessage(), NewMessage()]),
        lambda tickwheel: tickwheel.queue("jobs").dequeue(),
        lambda tickwheel: tickwheel.queue("jobs").dequeue(wait=timedelta(seconds=1)),
        lambda tickwheel: tickwheel.queue("jobs").get("m"),
        lambda tickwheel: tickwheel.set_setting("name", "value"),
        lambda tickwheel: tickwheel.queues(),
    ],
    ids=["enqueue", "enqueue_many", "dequeue", "waiting dequeue", "get", "set_setting", "queues"],
)
def test_a_response_that_cannot_be_parsed_raises_an_error_of_tickwheel(
    client: Any, hostile: HostileService, call: Callable[[Any], object]
) -> None:
    hostile.answer = UNPARSABLE
    with pytest.raises(TickwheelError, match="check that the url"):
        call(client)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda message: message.fail(), b""),
        (lambda message: message.extend(timedelta(minutes=1)), b""),
        (lambda message: message.complete(), calls.CompleteResponse(lost=[7]).SerializeToString()),
        (lambda message: message.release(), calls.ReleaseResponse(lost=[7]).SerializeToString()),
    ],
    ids=["fail", "extend", "complete", "release"],
)
def test_an_answer_for_other_leases_raises_an_error_of_tickwheel(
    client: Any, hostile: HostileService, call: Callable[[LeasedMessage], object], answer: bytes
) -> None:
    hostile.answer = DEQUEUED
    (message,) = client.queue("jobs").dequeue()
    hostile.answer = answer
    with pytest.raises(TickwheelError, match=r"not one of .* a Tickwheel service") as raised:
        call(message)
    assert hostile.url in str(raised.value)


@pytest.mark.parametrize(
    "details",
    [
        UNPARSABLE,
        details_of("LIMIT_EXCEEDED", retry_after_ms="soon"),
        details_of("LIMIT_EXCEEDED", retry_after_ms="9" * 5_000),
        details_of("ID_CONFLICT", retry_after_ms="1"),
    ],
    ids=["no status", "no number", "a number that is too long", "another attribute"],
)
def test_details_of_a_status_that_cannot_be_parsed_raise_an_error_of_tickwheel(
    client: Any, hostile: HostileService, details: bytes
) -> None:
    hostile.answer = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, details)
    with pytest.raises(TickwheelError, match="returned the status RESOURCE_EXHAUSTED: no; check that the url"):
        client.queue("jobs").dequeue()


@pytest.mark.parametrize(
    "milliseconds", [-(10**6), -(10**400), 10**400, 10**18], ids=["-1e6", "-1e400", "1e400", "1e18"]
)
def test_a_service_that_always_throttles_is_called_for_the_timeout_only_and_with_pauses(
    client: Any, hostile: HostileService, milliseconds: int
) -> None:
    hostile.answer = failing(
        grpc.StatusCode.RESOURCE_EXHAUSTED, details_of("LIMIT_EXCEEDED", retry_after_ms=str(milliseconds))
    )
    with pytest.raises(LimitExceeded) as raised:
        client.queue("jobs").enqueue(b"")
    assert raised.value.retry_after_ms == (0 if milliseconds < 0 else 3_600_000)
    assert len(hostile.calls) < 200


@pytest.mark.parametrize(
    "answer",
    [UNPARSABLE, calls.DequeueBatchResponse(answers=[{"place": 99}]).SerializeToString()],
    ids=["no response", "answers to other requests"],
)
def test_after_a_broken_answer_to_a_batch_each_dequeue_is_sent_alone(hostile: HostileService, answer: bytes) -> None:
    async def program() -> list[list[str]]:
        async with aio.Tickwheel(hostile.url, namespace="any", timeout=TIMEOUT) as tickwheel:
            queue = tickwheel.queue("jobs")
            dequeued = await asyncio.wait_for(asyncio.gather(*(queue.dequeue() for _ in range(3))), 60)
            return [[message.id for message in messages] for messages in dequeued]

    hostile.answer, hostile.batch_answer = DEQUEUED, answer
    assert asyncio.run(program()) == [["m"]] * 3
    assert BATCH in hostile.calls


@pytest.mark.parametrize("timeout", [LONG_TIMEOUT], ids=["long timeout"])
def test_a_response_above_the_largest_of_any_service_is_refused(client: Any, hostile: HostileService) -> None:
    hostile.answer = bytes(301 * 1024 * 1024)
    with pytest.raises(TickwheelError, match=r"returned the status RESOURCE_EXHAUSTED: .*larger than max"):
        client.queue("jobs").get("m")
