"""Concurrent dequeue calls of one client are sent as one call; each gets the answer of a call of its own."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc
import pytest

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.support.wait_until import eventually, eventually_in_task
from tickwheel import NewMessage, QueueBlocked, Tickwheel, TickwheelError, Unavailable, aio
from tickwheel.client.grpc.dequeue_batcher import DequeueBatcher
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

POLLS = 12


@pytest.fixture(params=[1, 3], ids=["1-shard", "3-shards"])
def direct(request: pytest.FixtureRequest, tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=request.param, drive=False) as tickwheel:
        yield tickwheel


@pytest.fixture
def generic_client(real_time_service: ServiceThread) -> Iterator[GenericClient]:
    with grpc.insecure_channel(real_time_service.target) as channel:
        yield GenericClient(channel)


@asynccontextmanager
async def client_of(real_time_service: ServiceThread, direct: Tickwheel) -> AsyncIterator[aio.Tickwheel]:
    async with aio.Tickwheel(real_time_service.url, namespace=direct._context.namespace) as tickwheel:
        yield tickwheel


def count_calls(real_time_service: ServiceThread, method: str) -> int:
    """Count the calls that have ended, normally or because their client left with all its messages."""
    return sum(real_time_service.server.counters.methods[method].codes.values())


def request(direct: Tickwheel, queue: str, slot: str, **fields: Any) -> dict[str, Any]:
    defaults = {
        "namespace": direct._context.namespace,
        "queue": queue,
        "request_id": f"{slot}:1",
        "first_attempt": True,
    }
    return defaults | fields


@pytest.mark.parametrize(("messages", "limit"), [(0, 10), (1, 10), (POLLS, 1), (5, 1), (200, 10)])
def test_concurrent_polls_are_one_call_and_each_message_goes_to_one_poll(
    real_time_service: ServiceThread, direct: Tickwheel, messages: int, limit: int
) -> None:
    direct.queue("q").enqueue_many(NewMessage() for _ in range(messages))

    async def poll() -> list[list[aio.Message]]:
        async with client_of(real_time_service, direct) as tickwheel:
            queue = tickwheel.queue("q")
            return await asyncio.gather(*(queue.dequeue(limit) for _ in range(POLLS)))

    alone, batches = count_calls(real_time_service, "Dequeue"), count_calls(real_time_service, "DequeueBatch")
    answers = asyncio.run(poll())
    assert max(map(len, answers)) <= limit
    ids = [message.id for part in answers for message in part]
    assert len(ids) == len(set(ids)) == min(messages, POLLS * limit)
    eventually(lambda: count_calls(real_time_service, "DequeueBatch") == batches + 1, "the polls were one call")
    assert count_calls(real_time_service, "Dequeue") == alone


def test_a_single_poll_is_a_call_of_its_own(real_time_service: ServiceThread, direct: Tickwheel) -> None:
    async def poll() -> None:
        async with client_of(real_time_service, direct) as tickwheel:
            assert await tickwheel.queue("q").dequeue() == []

    alone, batches = count_calls(real_time_service, "Dequeue"), count_calls(real_time_service, "DequeueBatch")
    asyncio.run(poll())
    assert (count_calls(real_time_service, "Dequeue"), count_calls(real_time_service, "DequeueBatch")) == (
        alone + 1,
        batches,
    )


def test_a_refused_poll_raises_its_error_and_the_others_receive_their_messages(
    real_time_service: ServiceThread, direct: Tickwheel
) -> None:
    direct.create_queue("blocked").block(enqueue=False)
    names = ["a", "b", "blocked", "c"]
    for name in names[:2]:
        direct.queue(name).enqueue(id=f"of-{name}")

    async def poll() -> list[Any]:
        async with client_of(real_time_service, direct) as tickwheel:
            return await asyncio.gather(*(tickwheel.queue(name).dequeue() for name in names), return_exceptions=True)

    a, b, blocked, c = asyncio.run(poll())
    assert [message.id for message in a + b + c] == ["of-a", "of-b"]
    assert isinstance(blocked, QueueBlocked)


def test_each_request_of_a_batch_has_its_own_filters_limits_leases_and_worker(
    real_time_service: ServiceThread, direct: Tickwheel
) -> None:
    films = direct.create_queue("films", indexed=["kind"])
    films.enqueue_many(NewMessage(metadata={"kind": kind}) for kind in ("hd", "hd", "uhd"))

    async def poll() -> tuple[list[aio.Message], ...]:
        async with client_of(real_time_service, direct) as tickwheel:
            queue = tickwheel.queue("films")
            return await asyncio.gather(
                queue.dequeue(5, where={"kind": "hd"}, lease=timedelta(minutes=7), worker="one"),
                queue.dequeue(5, where={"kind": "uhd"}, lease=timedelta(minutes=9), worker="two"),
                queue.dequeue(5, where={"kind": "sd"}),
            )

    hd, uhd, sd = asyncio.run(poll())
    assert [len(hd), len(uhd), len(sd)] == [2, 1, 0]
    assert {message._lease_ms for message in hd} == {7 * 60_000}
    assert {message._lease_ms for message in uhd} == {9 * 60_000}
    assert {films.explain(message.id).worker for message in hd} == {"one"}


def test_a_message_leased_for_a_caller_that_left_is_released(
    real_time_service: ServiceThread, direct: Tickwheel
) -> None:
    queue = direct.create_queue("q")
    queue.enqueue_many(NewMessage() for _ in range(POLLS))

    async def poll() -> list[Any]:
        async with client_of(real_time_service, direct) as tickwheel:
            polls = [asyncio.create_task(tickwheel.queue("q").dequeue()) for _ in range(POLLS)]
            io: Any = tickwheel._io
            while not io._dequeue_batcher._in_flight:
                await asyncio.sleep(0)
            # The polls are being sent.
            for task in polls[::2]:
                task.cancel()
            answers = await asyncio.gather(*polls, return_exceptions=True)
            async with asyncio.timeout(20):
                while queue.counts()["running"] > POLLS // 2:
                    await asyncio.sleep(0)
            return answers

    answers = asyncio.run(poll())
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True, False] * (POLLS // 2)
    assert all(len(answer) == 1 for answer in answers[1::2])
    counts = queue.counts()
    assert (counts["running"], counts["pending"]) == (POLLS // 2, POLLS // 2)
    # The messages are as if they had never been delivered.
    assert {message.attempt for message in queue.dequeue(POLLS)} == {1}


def test_a_message_for_a_caller_cancelled_before_its_turn_is_released(
    real_time_service: ServiceThread, direct: Tickwheel
) -> None:
    queue = direct.create_queue("q", lease=timedelta(hours=1))
    queue.enqueue_many(NewMessage() for _ in range(POLLS))

    async def poll() -> int:
        async with client_of(real_time_service, direct) as tickwheel:
            polls = [asyncio.create_task(tickwheel.queue("q").dequeue()) for _ in range(POLLS)]
            await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
            for task in polls:
                task.cancel()
            answers = await asyncio.gather(*polls, return_exceptions=True)
            delivered = [message for answer in answers if isinstance(answer, list) for message in answer]
            await tickwheel.queue("q").release_many(delivered)
            return len(delivered)

    assert all(asyncio.run(poll()) for _ in range(20))
    # The clients waited for the messages before they closed.
    assert queue.counts()["pending"] == POLLS


def test_messages_leased_for_polls_of_a_closed_client_are_released(
    real_time_service: ServiceThread, direct: Tickwheel
) -> None:
    """Some polls are cancelled, some get the error of a closed client, and some already have their messages."""
    queue = direct.create_queue("q", lease=timedelta(hours=1))
    queue.enqueue_many(NewMessage() for _ in range(POLLS))

    async def poll() -> None:
        async with client_of(real_time_service, direct) as tickwheel:
            polls = [asyncio.create_task(tickwheel.queue("q").dequeue()) for _ in range(POLLS)]
            await eventually_in_task(lambda: queue.counts()["running"], "some are leased")
            for task in polls[::2]:
                task.cancel()
        answers = await asyncio.gather(*polls, return_exceptions=True)
        assert {type(answer) for answer in answers} <= {asyncio.CancelledError, Unavailable, list}
        delivered = [message for answer in answers if isinstance(answer, list) for message in answer]
        if delivered:
            queue.release_many([direct.queue("q").leased(message.id, message.token) for message in delivered])

    for _ in range(10):
        asyncio.run(poll())
        assert queue.counts()["pending"] == POLLS


def test_dequeues_that_wait_or_have_a_request_id_are_not_batched(
    real_time_service: ServiceThread, direct: Tickwheel
) -> None:
    direct.create_queue("q")

    async def poll() -> None:
        async with client_of(real_time_service, direct) as tickwheel:
            queue = tickwheel.queue("q")
            waiting = [queue.dequeue(wait=timedelta(milliseconds=20)) for _ in range(3)]
            named = [queue.dequeue(request_id=f"mine-{n}:1") for n in range(3)]
            assert await asyncio.gather(*waiting, *named) == [[]] * 6

    alone, batches = count_calls(real_time_service, "Dequeue"), count_calls(real_time_service, "DequeueBatch")
    asyncio.run(poll())
    assert (count_calls(real_time_service, "Dequeue"), count_calls(real_time_service, "DequeueBatch")) == (
        alone + 6,
        batches,
    )


def test_an_older_service_without_the_batch_call_receives_single_calls(
    real_time_service: ServiceThread, direct: Tickwheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct.queue("q").enqueue_many(NewMessage() for _ in range(POLLS))
    original = DequeueBatcher.__init__

    def init_without_batch(self: DequeueBatcher, channel: Any, metadata: Any) -> None:
        original(self, channel, metadata)
        self._batch = channel.unary_stream(
            "/tickwheel.v1.MessageService/Unheard", lambda each: each.SerializeToString()
        )

    monkeypatch.setattr(DequeueBatcher, "__init__", init_without_batch)

    async def poll() -> list[int]:
        async with client_of(real_time_service, direct) as tickwheel:
            queue = tickwheel.queue("q")
            return [
                sum(map(len, await asyncio.gather(*(queue.dequeue() for _ in range(count))))) for count in (4, POLLS)
            ]

    assert asyncio.run(poll()) == [4, POLLS - 4]


def test_a_generic_client_gets_an_answer_to_each_request_that_can_be_answered(
    real_time_service: ServiceThread, direct: Tickwheel, generic_client: GenericClient
) -> None:
    direct.queue("a").enqueue(b"x", id="m")
    direct.create_queue("blocked").block(enqueue=False)
    requests = [
        request(direct, "a", "one"),
        request(direct, "empty", "two"),
        request(direct, "blocked", "three"),
        request(direct, "no such: name", "four"),
        request(direct, "a", "five", limit=5),
        request(direct, "a", "six", lease_ms=1, where={"x": "y"}),
    ]
    answers = [
        answer for part in generic_client.call_for_many("DequeueBatch", requests=requests) for answer in part["answers"]
    ]
    ids_by_place = {
        answer["place"]: [one["lease"]["id"] for one in answer["response"]["deliveries"]] for answer in answers
    }
    # Both requests for the message may receive it.
    assert sorted(ids_by_place.values()) == [[], [], ["m"]]
    assert ids_by_place[1] == []
    assert ids_by_place.keys() == {0, 1, 4}
    assert len(answers) == 3
    # A repeated request gets the same answer.
    for place in ids_by_place:
        again = generic_client.call("Dequeue", **requests[place] | {"first_attempt": False})
        assert [delivery["lease"]["id"] for delivery in again["deliveries"]] == ids_by_place[place]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"wait_ms": 1}, "request 1 must be a first_attempt with a request_id and without a wait"),
        ({"first_attempt": False}, "request 1 must be"),
        ({"request_id": ""}, "request 1 must be"),
        ({"request_id": "slot-0:1"}, "two requests have the same request_id"),
    ],
)
def test_an_invalid_batch_leases_nothing(
    direct: Tickwheel, generic_client: GenericClient, changed: dict[str, Any], text: str
) -> None:
    direct.queue("q").enqueue(b"x")
    requests = [request(direct, "q", "slot-0"), request(direct, "q", "slot-1", **changed)]
    with pytest.raises(grpc.RpcError) as refused:
        generic_client.call_for_many("DequeueBatch", requests=requests)
    error: Any = refused.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in error.details()
    assert direct.queue("q").counts()["running"] == 0


@pytest.mark.parametrize(
    "changed", [{"where": {"k" * 200: "v"}}, {"where": {"k": "v" * 2_000}}, {"queue": "a:b"}, {"namespace": "a:b"}]
)
def test_an_invalid_request_stays_unanswered_and_the_others_are_answered(
    direct: Tickwheel, generic_client: GenericClient, changed: dict[str, Any]
) -> None:
    direct.queue("q").enqueue(b"x")
    requests = [request(direct, "q", "slot-0") | changed, request(direct, "q", "slot-1")]
    answers = [
        answer for part in generic_client.call_for_many("DequeueBatch", requests=requests) for answer in part["answers"]
    ]
    assert [(answer["place"], len(answer["response"]["deliveries"])) for answer in answers] == [(1, 1)]


@pytest.mark.parametrize(
    ("count", "limit", "text"),
    [
        (101, 1, "a call takes at most 100 requests, not 101"),
        (3, 400, "requests are for 1200 messages, and at most 1000 are allowed in one call"),
    ],
)
def test_a_batch_with_too_many_requests_is_refused(
    direct: Tickwheel, generic_client: GenericClient, count: int, limit: int, text: str
) -> None:
    requests = [request(direct, "q", f"slot-{n}", limit=limit) for n in range(count)]
    with pytest.raises(grpc.RpcError) as refused:
        generic_client.call_for_many("DequeueBatch", requests=requests)
    error: Any = refused.value
    assert text in error.details()


@pytest.mark.parametrize(("count", "limit", "several"), [(250, 1, 3), (20, 100, 2), (5, 600, 0)])
def test_more_polls_than_one_call_takes_are_several_calls(
    real_time_service: ServiceThread, direct: Tickwheel, count: int, limit: int, several: int
) -> None:
    direct.queue("q").enqueue_many(NewMessage() for _ in range(250))

    async def poll() -> list[list[aio.Message]]:
        async with client_of(real_time_service, direct) as tickwheel:
            return await asyncio.gather(*(tickwheel.queue("q").dequeue(limit) for _ in range(count)))

    batches = count_calls(real_time_service, "DequeueBatch")
    assert len({message.id for messages in asyncio.run(poll()) for message in messages}) == 250
    eventually(
        lambda: count_calls(real_time_service, "DequeueBatch") == batches + several,
        "the batch was split",
    )


def test_batched_dequeues_are_counted_by_queue(real_time_service: ServiceThread, direct: Tickwheel) -> None:
    direct.queue("x").enqueue(b"1")
    direct.queue("y").enqueue_many(NewMessage() for _ in range(3))

    async def poll() -> None:
        async with client_of(real_time_service, direct) as tickwheel:
            await asyncio.gather(*(tickwheel.queue(name).dequeue(5) for name in ("x", "y", "z")))

    asyncio.run(poll())
    namespace, counts = direct._context.namespace, real_time_service.server.counters.messages["delivered"].counts
    assert {queue: count for (of, queue), count in counts.items() if of == namespace} == {"x": 1, "y": 3}


@pytest.mark.parametrize("turns", range(6))
def test_polls_end_when_their_client_is_closed(real_time_service: ServiceThread, direct: Tickwheel, turns: int) -> None:
    async def poll() -> list[Any]:
        async with client_of(real_time_service, direct) as tickwheel:
            await tickwheel.queue("q").dequeue()
            polls = [asyncio.create_task(tickwheel.queue("q").dequeue()) for _ in range(POLLS)]
            for _ in range(turns):
                await asyncio.sleep(0)
        async with asyncio.timeout(20):
            return await asyncio.gather(*polls, return_exceptions=True)

    for ended in asyncio.run(poll()):
        assert isinstance(ended, TickwheelError)
        assert f"the client of {real_time_service.url} " in str(ended)
        assert "closed" in str(ended)
