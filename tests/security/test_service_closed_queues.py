"""Many calls that wait for queues that do not exist: they cost a process of the service and its server little."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from tests.integration.service_thread import ServiceThread
from tests.support.command_stats import calls_of
from tests.support.wait_until import eventually
from tickwheel import LimitExceeded, Tickwheel, limits
from tickwheel.redis.closed_queues import MAX_READ
from tickwheel.service.answer_limits import AnswerLimits
from tickwheel.service.namespaces import Namespace
from tickwheel.testing import PrivateServer
from tickwheel.v1.message_service_pb2 import AwaitMessagesRequest, AwaitMessagesResponse

pytestmark = pytest.mark.security

NAMESPACE = "closed-queues"
WAIT_MS = 600_000
# The calls that begin at a time. A caller may have 1,000 calls that do not wait yet.
BURST = 250


class Waiting:
    """The service in front of a server of its own, and a client with many calls that wait."""

    def __init__(self, server: PrivateServer, service: ServiceThread, channel: grpc.Channel, tw: Tickwheel) -> None:
        self.server = server
        self.tw = tw
        self._service = service
        self._send: Any = channel.unary_unary(
            "/tickwheel.v1.MessageService/AwaitMessages",
            request_serializer=AwaitMessagesRequest.SerializeToString,
            response_deserializer=AwaitMessagesResponse.FromString,
        )
        self.calls: list[Any] = []

    @property
    def answers(self) -> AnswerLimits:
        return self._service.server._answers

    @property
    def _namespace(self) -> Namespace:
        assert self._service.server._namespaces is not None
        return self._service.server._namespaces.by_name[NAMESPACE]

    def begin(self, lists: list[list[str]]) -> None:
        """Begin a call for each list of queues, and return when all of them wait."""
        for start in range(0, len(lists), BURST):
            self.calls += [
                self._send.future(AwaitMessagesRequest(namespace=NAMESPACE, queues=queues, wait_ms=WAIT_MS))
                for queues in lists[start : start + BURST]
            ]
            eventually(lambda: self.waiting() == len(self.calls), "all calls wait", within=60)

    def waiting(self) -> int:
        assert [call.exception() for call in self.calls if call.done()] == []
        opened = self._service.server._namespaces
        assert opened is not None
        return opened.by_name[NAMESPACE].wakeups.waiter_count if NAMESPACE in opened.by_name else 0

    def sweep(self, count: int) -> int:
        """Wait for this number of sweeps at least, and return their number."""
        waiters = self._namespace.wakeups._waiters
        before = waiters._sweep_count
        eventually(lambda: waiters._sweep_count >= before + count, "the sweeps")
        return waiters._sweep_count - before

    def subscribed(self, queue: str) -> int:
        """Return the number of calls that wait for the messages of an open queue."""
        line = self._namespace.wakeups._waiters._queues.get(queue)
        # The thread of the service changes these dictionaries at the same time.
        callers = [] if line is None else list(line._callers.values())
        return sum(len(waiters) for caller in callers for waiters in list(caller.by_filter.values()))

    def reads(self) -> int:
        """Return the number of commands so far that read configurations of queues or other fields of hashes."""
        with self.server.client() as client:
            return calls_of(client, "hget", "hmget")

    def connections(self) -> int:
        with self.server.client() as client:
            info: Any = client.info("clients")
            return int(info["connected_clients"])


def start(shards: int) -> Iterator[Waiting]:
    with ExitStack() as stack:
        server = PrivateServer()
        stack.callback(server.close)
        tw = stack.enter_context(Tickwheel(server.url, namespace=NAMESPACE, shards=shards, drive=False))
        service = stack.enter_context(ServiceThread(server.url))
        channel = stack.enter_context(grpc.insecure_channel(service.target))
        waiting = Waiting(server, service, channel, tw)
        yield waiting
        for call in waiting.calls:
            call.cancel()


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    yield from start(1)


@pytest.fixture
def waiting_on_four_shards() -> Iterator[Waiting]:
    yield from start(4)


def test_a_sweep_costs_two_reads_whatever_the_number_of_calls_and_of_absent_queues(waiting: Waiting) -> None:
    waiting.begin([[f"q-{n}-{m}" for m in range(100)] for n in range(1_500)])
    before = waiting.reads()
    sweeps = waiting.sweep(3)
    # A sweep may have begun before the first count, and another one before the second count.
    assert waiting.reads() - before <= 2 * (sweeps + 2)


def test_a_created_queue_is_noticed_among_more_closed_queues_than_a_sweep_reads(waiting: Waiting) -> None:
    lists = [[f"q-{n}-{m}" for m in range(100)] for n in range(5)]
    assert sum(map(len, lists)) > MAX_READ
    waiting.begin(lists)
    for n in (0, 4):
        waiting.tw.create_queue(f"q-{n}-99").enqueue()
        assert waiting.calls[n].result(20).queues == [f"q-{n}-99"]
    assert not any(waiting.calls[n].done() for n in (1, 2, 3))


def test_an_unblocked_queue_is_noticed_among_absent_queues(waiting: Waiting) -> None:
    blocked = waiting.tw.create_queue("blocked")
    blocked.block(enqueue=False, dequeue=True)
    waiting.begin([["blocked", *(f"q-{n}-{m}" for m in range(50))] for n in range(5)])
    blocked.enqueue()
    waiting.sweep(2)
    assert not any(call.done() for call in waiting.calls)
    blocked.unblock(enqueue=False, dequeue=True)
    eventually(lambda: any(call.done() for call in waiting.calls), "a call notices")


def test_waiting_calls_take_no_turns_of_answers_and_end_not_with_unread_answers(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int = 0) -> None:
        raise LimitExceeded("the caller has too many unread answers")

    waiting.answers.building.count("others", limits.ANSWERS_AT_ONCE)
    monkeypatch.setattr(waiting.answers, "turn", refuse)
    monkeypatch.setattr(waiting.answers, "check", refuse)
    waiting.begin([["late"], ["late", "absent"]])
    waiting.sweep(2)
    waiting.tw.create_queue("late").enqueue()
    eventually(lambda: any(call.done() for call in waiting.calls), "a call gets the queue")
    assert {call.exception() for call in waiting.calls if call.done()} == {None}


def test_the_opening_of_a_queue_on_which_many_calls_wait_opens_few_connections(
    waiting_on_four_shards: Waiting,
) -> None:
    waiting = waiting_on_four_shards
    waiting.begin([["late", f"absent-{n}"] for n in range(1_000)])
    assert waiting.connections() < 100
    late = waiting.tw.create_queue("late")
    eventually(lambda: waiting.subscribed("late") == 1_000, "all calls notice", within=60)
    # The service keeps its connections, so this is their maximum.
    assert waiting.connections() < 100

    late.enqueue()
    eventually(lambda: any(call.done() for call in waiting.calls), "a call gets the queue")
