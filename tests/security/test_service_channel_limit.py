"""A caller of the service has a limited number of wake channels. Above the limit, its calls check once a second.

Without tokens, the callers of the service are the addresses of its clients.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from tests.integration.service_thread import ServiceThread
from tests.support.wait_until import eventually
from tickwheel import Tickwheel, limits
from tickwheel.redis import subscriptions
from tickwheel.redis.caller_channels import CallerChannels
from tickwheel.testing import PrivateServer
from tickwheel.v1.message_service_pb2 import (
    AwaitMessagesRequest,
    AwaitMessagesResponse,
    DequeueRequest,
    DequeueResponse,
)

pytestmark = pytest.mark.security

NAMESPACE, OTHER, SHARDS = "channels", "other-channels", 4
# The queues whose channels a caller may have, and those for which its calls wait.
MOST, NAMES = 2, ["first", "second", "third", "fourth"]
WAIT_MS = 600_000


class Service:
    """A service with one caller, in front of a server of its own."""

    def __init__(self, server: PrivateServer, service: ServiceThread, channel: grpc.Channel) -> None:
        self.server = server
        self._service = service
        self._channel = channel
        self.calls: list[Any] = []

    def await_messages(self, queues: list[str], namespace: str = NAMESPACE) -> Any:
        """Return a call that has begun to wait for the messages of queues."""
        return self._begin(self.send(queues, namespace))

    def send(self, queues: list[str], namespace: str = NAMESPACE) -> Any:
        send: Any = self._channel.unary_unary(
            "/tickwheel.v1.MessageService/AwaitMessages",
            request_serializer=AwaitMessagesRequest.SerializeToString,
            response_deserializer=AwaitMessagesResponse.FromString,
        )
        return send.future(AwaitMessagesRequest(namespace=namespace, queues=queues, wait_ms=WAIT_MS))

    def dequeue(self, queue: str) -> Any:
        send: Any = self._channel.unary_unary(
            "/tickwheel.v1.MessageService/Dequeue",
            request_serializer=DequeueRequest.SerializeToString,
            response_deserializer=DequeueResponse.FromString,
        )
        return self._begin(send.future(DequeueRequest(namespace=NAMESPACE, queue=queue, limit=1, wait_ms=WAIT_MS)))

    def _begin(self, call: Any) -> Any:
        """Return a call that has begun to wait."""
        self.calls.append(call)
        waiting = sum(not call.done() for call in self.calls)
        opened: Any = self._service.server._namespaces
        eventually(lambda: sum(n.wakeups.waiter_count for n in opened.by_name.values()) == waiting, "the call waits")
        return call

    def count_channels(self) -> int:
        with self.server.client() as client:
            channels: Any = client.execute_command("PUBSUB", "SHARDCHANNELS", "*:wake")
            return len(channels)

    def has_most_channels(self) -> bool:
        """Return whether the service has the channels of its caller up to the limit, and is subscribed to no others."""
        return self.count_of_caller() == self.count_channels() == MOST * SHARDS

    def count_of_caller(self) -> int:
        """Return the number of channels that the service has counted for its caller."""
        opened: Any = self._service.server._namespaces
        return sum(opened._caller_channels._counts.values())


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(limits, "CALLER_CHANNELS", MOST * SHARDS)
    with ExitStack() as stack:
        server = PrivateServer()
        stack.callback(server.close)
        thread = stack.enter_context(ServiceThread(server.url))
        channel = stack.enter_context(grpc.insecure_channel(thread.target))
        service = Service(server, thread, channel)
        yield service
        for call in service.calls:
            call.cancel()


@pytest.fixture
def open_namespace(service: Service) -> Iterator[Callable[[str], Tickwheel]]:
    with ExitStack() as stack:

        def open_it(name: str) -> Tickwheel:
            tw = stack.enter_context(Tickwheel(service.server.url, namespace=name, shards=SHARDS, drive=False))
            for queue in NAMES:
                tw.create_queue(queue)
            return tw

        yield open_it


@pytest.fixture
def tw(open_namespace: Callable[[str], Tickwheel]) -> Tickwheel:
    return open_namespace(NAMESPACE)


def test_above_the_limit_a_call_gets_messages_of_all_its_queues(service: Service, tw: Tickwheel) -> None:
    for queue in NAMES:
        call = service.await_messages(NAMES)
        eventually(service.has_most_channels, "the call has the channels up to the limit")

        tw.queue(queue).enqueue()

        assert call.result(20).queues == [queue]
        assert tw.queue(queue).dequeue()


def test_above_the_limit_a_dequeue_gets_its_message(
    service: Service, tw: Tickwheel, caplog: pytest.LogCaptureFixture
) -> None:
    service.await_messages(NAMES[:MOST])
    dequeued = service.dequeue("fourth")
    eventually(service.has_most_channels, "the calls have the channels up to the limit")

    tw.queue("fourth").enqueue()

    assert len(dequeued.result(20).deliveries) == 1
    assert any(f"its limit of {MOST * SHARDS} wake channels" in record.getMessage() for record in caplog.records)


def test_the_limit_holds_over_all_namespaces_of_the_service(
    service: Service, tw: Tickwheel, open_namespace: Callable[[str], Tickwheel]
) -> None:
    open_namespace(OTHER)
    service.await_messages(NAMES[:1])
    service.await_messages(NAMES, OTHER)
    eventually(service.has_most_channels, "the calls have the channels up to the limit")


def test_channels_no_longer_count_after_their_subscription_has_ended(
    service: Service, tw: Tickwheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = service.await_messages(NAMES)
    eventually(service.has_most_channels, "the call has the channels up to the limit")
    call.cancel()

    monkeypatch.setattr(subscriptions, "IDLE_S", -1)

    eventually(lambda: service.count_of_caller() == 0, "the subscriptions end")
    eventually(lambda: service.count_channels() == 0, "the channels are left")


def test_channels_no_longer_count_after_their_namespace_was_deleted(service: Service, tw: Tickwheel) -> None:
    call = service.await_messages(NAMES)
    eventually(service.has_most_channels, "the call has the channels up to the limit")
    tw.delete_namespace()
    assert call.exception(20) is not None
    assert service.send(NAMES).exception(20).code() is grpc.StatusCode.NOT_FOUND
    eventually(lambda: service.count_of_caller() == 0, "the service forgets the namespace")


def test_the_callers_have_a_limit_each_and_a_program_with_its_own_client_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CALLER_CHANNELS", 10)
    channels = CallerChannels()
    assert channels.take("a", 10)
    assert not channels.take("a", 1)
    assert channels.take("b", 6)
    assert not channels.take("b", 5)
    assert channels.take("", 11)
    channels.put_back("a", 10)
    assert channels.take("a", 1)
