"""The RPC with which a client of the service waits for the messages of several queues."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.support.earlier_service import remove_rpc
from tests.support.several_queues import LONG_S, NAMES, Caller
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.errors import NamespaceGone, TickwheelError
from tickwheel.redis.wait_list import WaitList
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

MISSING = (
    "the service is of an older version, without AwaitMessages: while all queues of a worker are empty, the worker"
    " waits for the messages of one queue at a time; update the service"
)


@pytest.fixture
def direct(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as tickwheel:
        for name in NAMES:
            tickwheel.create_queue(name)
        yield tickwheel


@pytest.fixture
def generic_client(real_time_service: ServiceThread) -> Iterator[GenericClient]:
    with grpc.insecure_channel(real_time_service.target) as channel:
        yield GenericClient(channel)


def waiting_calls(service: ServiceThread, namespace: str) -> int:
    """Return the number of waiting calls."""
    namespaces = service.server._namespaces
    opened = None if namespaces is None else namespaces.by_name.get(namespace)
    return 0 if opened is None else opened.wakeups.waiter_count


def test_the_call_returns_the_queue_that_announces_a_message_and_leases_nothing(
    real_time_service: ServiceThread, direct: Tickwheel, generic_client: GenericClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WaitList, "begin_sweep", lambda _: None)
    namespace = direct._context.namespace
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(
            generic_client.call, "AwaitMessages", namespace=namespace, queues=NAMES, wait_ms=15_000
        )
        eventually(lambda: waiting_calls(real_time_service, namespace) == 1, "the call waits")
        direct.queue("green").enqueue(id="m")
        assert waiting.result(LONG_S)["queues"] == ["green"]
    assert direct.queue("green").counts()["pending"] == 1
    eventually(lambda: waiting_calls(real_time_service, namespace) == 0, "the call has left all lines")


def test_the_call_returns_all_queues_that_have_messages_and_none_of_the_others(
    direct: Tickwheel, generic_client: GenericClient
) -> None:
    wanted: dict[str, Any] = {"namespace": direct._context.namespace, "queues": [*NAMES, "absent"]}
    direct.queue("red").block(enqueue=False)
    assert not generic_client.call("AwaitMessages", **wanted).get("queues")
    for name in ("red", "blue"):
        direct.queue(name).enqueue()
    direct.create_queue("absent")

    assert generic_client.call("AwaitMessages", **wanted)["queues"] == ["blue"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "queues must name at least one queue"),
        ({"queues": ["red", "red"]}, "each queue once"),
        ({"queues": [f"q{n}" for n in range(101)]}, "at most 100 queues"),
        ({"queues": ["no/name"]}, "a queue's name"),
        ({"queues": ["red"], "wait_ms": -1}, "wait"),
        ({"queues": ["red"], "wait_ms": 3_600_001}, "wait"),
    ],
)
def test_an_invalid_request_is_refused(
    direct: Tickwheel, generic_client: GenericClient, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(grpc.RpcError, match=problem) as refused:
        generic_client.call("AwaitMessages", namespace=direct._context.namespace, **fields)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_drain_of_the_service_ends_the_call(
    tickwheel_server: PrivateServer, direct: Tickwheel, threads: ThreadPoolExecutor
) -> None:
    with ServiceThread(tickwheel_server.url) as service, grpc.insecure_channel(service.target) as channel:
        waiting = threads.submit(
            GenericClient(channel).call,
            "AwaitMessages",
            namespace=direct._context.namespace,
            queues=NAMES,
            wait_ms=15_000,
        )
        eventually(lambda: waiting_calls(service, direct._context.namespace) == 1, "the call waits")
        service.stop()
        assert not waiting.result(LONG_S).get("queues")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def test_a_call_fails_when_its_client_is_closed(
    tickwheel_server: PrivateServer, direct: Tickwheel, threads: ThreadPoolExecutor
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=direct._context.namespace, drive=False) as closed:
        caller = Caller(closed)
        assert caller.take()[1] == []
        waiting = threads.submit(caller.take, LONG_S)
        eventually(lambda: closed._io.wakeups._waiters.count() == 1, "the call waits")
    with pytest.raises(TickwheelError, match="closed"):
        waiting.result(LONG_S / 2)


def test_a_call_fails_if_its_namespace_is_gone(
    tickwheel_server: PrivateServer, direct: Tickwheel, real_time_service: ServiceThread
) -> None:
    with Tickwheel(real_time_service.url, namespace=direct._context.namespace) as over_service:
        callers = [Caller(direct), Caller(over_service)]
        for caller in callers:
            caller.take()
        tickwheel_server.clear(direct._context.namespace)
        for caller in callers:
            with pytest.raises(NamespaceGone):
                caller.take(LONG_S)


def test_an_older_service_is_polled_as_before_and_reported_once(
    real_time_service: ServiceThread,
    direct: Tickwheel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    remove_rpc(monkeypatch, "AwaitMessages")
    with (
        caplog.at_level("WARNING", "tickwheel"),
        Tickwheel(real_time_service.url, namespace=direct._context.namespace) as tickwheel,
    ):
        caller = Caller(tickwheel)
        for _ in range(2):
            assert caller.take()[1] == []
            assert caller.take(LONG_S)[1] == []
            # The worker then waits for the messages of the chosen queue.
            assert not caller.several.is_idle
    assert [message for message in caplog.messages if "AwaitMessages" in message] == [MISSING]
