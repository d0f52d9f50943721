"""Answers that no Redis server gives: each call ends in time, with an error of Tickwheel or the true answer."""

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest

from tests.integration.blocking_aio import blocking_aio
from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.security.hostile_calls import OPERATIONS, comparable, prepare, state_of, truth, undisturbed
from tests.security.hostile_server import SHAPES, HostileServer
from tests.support.event_process_thread import run_event_process
from tests.support.soak import IN_SOAK
from tests.support.wait_until import eventually
from tickwheel import Queue, Tickwheel, TickwheelError, Unavailable
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

TIMEOUT = timedelta(milliseconds=200)
# A call that takes longer hangs. A call sends several requests, and each of them may take the timeout.
HANGS_S = 50 * TIMEOUT.total_seconds()
# The answers of a server with nothing to return. A client cannot know that they are false.
NOTHING = {"empty array"}
NO_MESSAGE = {"nil", "nil array", "empty array"}
CREDIBLE: dict[str, set[str]] = {
    "queues": NOTHING,
    "settings": NOTHING,
    "dequeue": NO_MESSAGE,
    "dequeue with a filter": NO_MESSAGE,
    "dequeue in exact order": NO_MESSAGE,
    "dequeue with a wait": NO_MESSAGE,
}


@contextmanager
def service_client(url: str, namespace: str, timeout: timedelta) -> Iterator[Tickwheel]:
    """A client of a service whose Redis is the server of the URL."""
    with (
        ServiceThread(url, timeout=timeout) as service,
        Tickwheel(service.url, namespace=namespace, timeout=timeout) as client,
    ):
        yield client


CLIENTS: dict[str, Any] = {"blocking": Tickwheel, "asyncio": blocking_aio, "service": service_client}


@contextmanager
def opened(open_client: Callable[..., Any], hostile: HostileServer, namespace: str) -> Iterator[Any]:
    """Open a client while the server is well, even if the machine is too busy for the client's timeout."""
    with ExitStack() as stack:
        yield undisturbed(lambda: stack.enter_context(open_client(hostile.url, namespace=namespace, timeout=TIMEOUT)))


@pytest.fixture
def hostile(tickwheel_server: PrivateServer) -> Iterator[HostileServer]:
    with HostileServer(urlsplit(tickwheel_server.url).path) as server:
        yield server


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, hostile: HostileServer, namespace: str, healthy: Tickwheel) -> Iterator[Any]:
    """A client of each kind whose server turns hostile."""
    with opened(CLIENTS[request.param], hostile, namespace) as tickwheel:
        yield tickwheel


@pytest.fixture
def healthy(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    """A client of the server itself."""
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        yield tickwheel


def is_well(queue: Any) -> bool:
    try:
        return bool(queue.enqueue(b"x", id="after").id == "after")
    except TickwheelError:
        return False


def end_of(call: Callable[[], object]) -> object:
    """Return the answer of a call, or its error, which must be one of Tickwheel. Fails if the call hangs."""
    ends: list[object] = []

    def run() -> None:
        try:
            ends.append(call())
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANGS_S)
    assert ends, f"the call has not ended within {HANGS_S} s"
    assert not isinstance(ends[0], BaseException) or isinstance(ends[0], TickwheelError), repr(ends[0])
    return ends[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.timeout(300)
def test_each_call_raises_an_error_of_tickwheel_or_returns_the_true_answer(
    client: Any, healthy: Tickwheel, hostile: HostileServer, shape: str
) -> None:
    wrong = []
    chance = random.Random(f"{os.environ['TICKWHEEL_TEST_SEED']} {shape}")
    # Other operations in each run.
    operations = OPERATIONS if IN_SOAK else chance.sample(sorted(OPERATIONS), len(OPERATIONS) // 4)
    for operation in operations:
        call = OPERATIONS[operation]
        true_outcome = truth(healthy, client, operation)
        # The number of good answers that precede the hostile ones.
        for good in range(3) if IN_SOAK else [chance.randrange(3)]:
            prepared = prepare(healthy, client, f"{good}-" + operation.replace(" ", "-"))
            hostile.turn(SHAPES[shape], good)
            end = end_of(partial(call, prepared))
            hostile.turn(None)
            assert "because of a bug" not in str(end)
            # Only the client of the service gives its calls request ids.
            assert repr(client).startswith("<Tickwheel grpc:") or "request_id" not in str(end)
            eventually(partial(is_well, prepared.queue), "the client works again")
            if isinstance(end, TickwheelError):
                continue
            answer = comparable(end, prepared.queue.name)
            is_credible = shape in CREDIBLE.get(operation, ()) and not answer
            if not is_credible and (answer, state_of(healthy, prepared.queue.name)) != true_outcome:
                wrong.append((operation, good, answer))
    assert not wrong


def code_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """Return the status code of a gRPC call and its text."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), str(error.details())
    return grpc.StatusCode.OK, ""


@pytest.mark.parametrize("shape", SHAPES)
def test_the_service_reports_a_hostile_server_as_an_error_of_tickwheel_and_serves_again(
    hostile: HostileServer, healthy: Tickwheel, namespace: str, shape: str
) -> None:
    healthy.create_queue("q")
    with (
        ServiceThread(hostile.url, timeout=TIMEOUT) as service,
        grpc.insecure_channel(service.target) as channel,
    ):
        call = GenericClient(channel).call
        requests: dict[str, dict[str, Any]] = {
            "Enqueue": {"queue": "q", "message": {"id": "m"}},
            "Dequeue": {"queue": "q"},
            "AwaitMessages": {"queues": ["q", "r"]},
            "Complete": {"queue": "q", "leases": [{"id": "m", "token": "AAAAAAAAAAAAAAAAAAAAAA=="}]},
            "SetSetting": {"name": "a", "value": "b"},
        }
        for method, fields in requests.items():
            hostile.turn(SHAPES[shape])
            code, text = code_of(partial(call, method, namespace=namespace, timeout=HANGS_S, **fields))
            assert code not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED)
            assert "because of a bug" not in text
            hostile.turn(None)
            enqueue = partial(call, "Enqueue", namespace=namespace, queue="q", message={"id": method})
            eventually(lambda: code_of(enqueue)[0] is grpc.StatusCode.OK, "the service works again")  # noqa: B023


@contextmanager
def queue_of_hostile_server(hostile: HostileServer, healthy: Tickwheel, namespace: str) -> Iterator[Queue]:
    """Create a queue, and open it through the hostile server, which is well until then."""
    healthy.create_queue("q")
    with opened(Tickwheel, hostile, namespace) as tickwheel:
        queue = tickwheel.queue("q")
        undisturbed(queue.config)
        yield queue


def test_a_server_that_never_keeps_a_script_is_unavailable(
    hostile: HostileServer, healthy: Tickwheel, namespace: str
) -> None:
    with queue_of_hostile_server(hostile, healthy, namespace) as queue:
        hostile.turn(SHAPES["no script"])
        with pytest.raises(Unavailable, match="just loaded"):
            queue.enqueue(b"x")


def test_the_error_of_a_broken_answer_names_the_server(
    hostile: HostileServer, healthy: Tickwheel, namespace: str
) -> None:
    with queue_of_hostile_server(hostile, healthy, namespace) as queue:
        hostile.turn(SHAPES["integer"])
        with pytest.raises(TickwheelError, match="not one of Redis or Valkey") as raised:
            queue.counts()
        assert hostile.url in str(raised.value)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_event_process_continues_when_the_server_is_well_again(
    hostile: HostileServer, tickwheel_server: PrivateServer, namespace: str, shape: str, tmp_path: Path
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        queue = tickwheel.create_queue("q")
        with run_event_process(hostile.url, namespace, tmp_path / "lock"):
            queue.enqueue(b"x", delay=timedelta(milliseconds=1))
            [message] = queue.dequeue(wait=timedelta(seconds=10))
            message.complete()
            hostile.turn(SHAPES[shape])
            queue.enqueue(b"x", delay=timedelta(milliseconds=1))
            queue.dequeue(wait=timedelta(milliseconds=500))
            hostile.turn(None)
            queue.enqueue(b"x", delay=timedelta(milliseconds=1))
            eventually(lambda: queue.dequeue(), "a message is delivered")
