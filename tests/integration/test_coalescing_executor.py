"""Concurrent small calls of the service share round trips to the server, and nothing else."""

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest

from tests.integration.service_namespace import make_dequeue, open_namespace
from tests.support.command_stats import calls_of
from tests.support.wait_until import eventually_in_task
from tickwheel import NewMessage, Tickwheel, TickwheelError
from tickwheel.model.message import LeasedMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.operations.enqueue import enqueue_many
from tickwheel.operations.settle import complete
from tickwheel.plan import Plan, Reply, Request, send_request
from tickwheel.service.batching import coalescing_executor
from tickwheel.service.namespaces import Namespace
from tickwheel.storage.record import encode_filters
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

CALLS = 32


def namespace(server: PrivateServer) -> AbstractAsyncContextManager[Namespace]:
    return open_namespace(server, "together")


def dequeue(of: Namespace, queue: str, request_id: str | None = None) -> Plan[list[LeasedMessage]]:
    return make_dequeue(of, queue, request_id).plan(LeasedMessage)


def test_one_check_of_an_empty_queue_answers_many_calls(tickwheel_server: PrivateServer, server: Any) -> None:
    async def ask() -> tuple[list[list[LeasedMessage]], int]:
        async with namespace(tickwheel_server) as of:
            await of.run(dequeue(of, "empty"))
            before = calls_of(server, "exists")
            answers = await asyncio.gather(*(of.run(dequeue(of, "empty")) for _ in range(CALLS)))
            return answers, calls_of(server, "exists") - before

    answers, looks = asyncio.run(ask())
    assert answers == [[]] * CALLS
    assert looks <= CALLS // 4


@pytest.mark.parametrize("named", [False, True], ids=["not-named", "named"])
def test_each_call_has_leases_of_its_own(tickwheel_server: PrivateServer, named: bool) -> None:
    async def work() -> tuple[list[list[LeasedMessage]], list[list[LeasedMessage]]]:
        queue = f"work-{named}"
        async with namespace(tickwheel_server) as of:
            await of.run(enqueue_many(of.context, queue, [NewMessage() for _ in range(CALLS)]))
            ids = [f"slot-{n}:1" if named else None for n in range(CALLS)]
            answers = await asyncio.gather(*(of.run(dequeue(of, queue, id_)) for id_ in ids))
            again = await asyncio.gather(*(of.run(dequeue(of, queue, id_)) for id_ in ids))
            await asyncio.gather(*(of.run(complete(of.context, messages)) for messages in answers))
            return answers, again

    answers, again = asyncio.run(work())
    assert len({message.id for messages in answers for message in messages}) == CALLS
    assert len({message.token for messages in answers for message in messages}) == CALLS
    # A repeated request has the same answer, also in a group; a new request finds no message.
    tokens = [[message.token for message in messages] for messages in answers]
    assert [[message.token for message in messages] for messages in again] == (tokens if named else [[]] * CALLS)


def test_a_large_read_is_sent_apart_from_small_calls(tickwheel_server: PrivateServer) -> None:
    commands: list[Any] = [("HGETALL", "h"), ("HSCAN", "h", "0"), ("XRANGE", "x", "-", "+", "COUNT", 1), ("GET", "g")]

    async def ask() -> list[list[str]]:
        rounds: list[list[str]] = []
        async with namespace(tickwheel_server) as of:
            uncoalesced = of._executor.uncoalesced
            send = uncoalesced.round

            async def record(requests: list[Request], *args: Any, **options: Any) -> list[Reply]:
                rounds.append([str(request.command[0]) for request in requests if request.command])
                return await send(requests, *args, **options)

            monkeypatch.setattr(uncoalesced, "round", record)
            plans = [send_request(Request(0, command=("GET", f"g{n}"))) for n in range(2)]
            plans += [send_request(Request(0, command=command)) for command in commands]
            await asyncio.gather(*map(of.run, plans))
        return rounds

    with pytest.MonkeyPatch.context() as monkeypatch:
        rounds = asyncio.run(ask())
    assert [name for names in rounds if len(names) > 1 for name in names] == ["GET"] * 2
    assert sorted(names[0] for names in rounds) == ["GET", "GET", "HGETALL", "HSCAN", "XRANGE"]


@pytest.mark.parametrize(
    ("filters", "exclusive_key", "is_long"),
    [({"a": "1"}, None, False), ({"a": "1", "b": "1"}, None, True), ({"a": "1"}, "a", True)],
)
@pytest.mark.parametrize(("group_s", "largest"), [(-1.0, 4), (60.0, 32)], ids=["slow-groups", "quick-groups"])
def test_dequeues_that_take_long_have_groups_of_their_own_with_few_of_them(
    tickwheel_server: PrivateServer,
    filters: dict[str, str],
    exclusive_key: str | None,
    is_long: bool,
    group_s: float,
    largest: int,
) -> None:
    groups: list[tuple[int, int]] = []

    async def work() -> None:
        queue = f"filtered-{len(filters)}-{largest}-{exclusive_key}"
        async with namespace(tickwheel_server) as of:
            with Tickwheel(tickwheel_server.url, namespace=of.context.namespace, drive=False) as client:
                client.create_queue(queue, exclusive_key=exclusive_key)
            await of.run(enqueue_many(of.context, queue, [NewMessage(metadata={**filters, "b": "2"})]))
            uncoalesced = of._executor.uncoalesced
            send = uncoalesced.round

            async def record(requests: list[Request], *args: Any, **options: Any) -> list[Reply]:
                scripts = [request.call.script.name for request in requests if request.call]
                short = [request for request in requests if request.command and request.command[0] == "GET"]
                groups.append((scripts.count("dequeue"), len(short)))
                return await send(requests, *args, **options)

            monkeypatch.setattr(uncoalesced, "round", record)
            # All groups count as slow or as quick ones.
            monkeypatch.setattr(coalescing_executor, "_LONG_GROUP_S", group_s)
            monkeypatch.setattr(coalescing_executor, "_SHORT_GROUP_S", group_s)
            options = DequeueOptions.parse(1, where=filters)
            long = [Dequeue(of.context, queue, options).plan(LeasedMessage) for _ in range(8 * CALLS)]
            short = [send_request(Request(0, command=("GET", f"g{n}"))) for n in range(CALLS)]
            await asyncio.gather(*map(of.run, long), *map(of.run, short))

    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(work())
    sizes = [size for size, _ in groups if size]
    assert sum(sizes) >= 8 * CALLS
    if is_long:
        assert max(sizes) <= largest
        assert (max(sizes) > 4) is (largest > 4)
        assert not [short for long, short in groups if long and short]
    else:
        assert max(sizes) > 16


def test_a_refused_call_refuses_no_other_call(tickwheel_server: PrivateServer, server: Any) -> None:
    async def ask() -> list[Any]:
        async with namespace(tickwheel_server) as of:
            await of.run(dequeue(of, "empty"))
            server.set("together:text", "x", ex=60)
            wrong = send_request(Request(0, command=("HGET", "together:text", "field")))
            return await asyncio.gather(
                *(of.run(dequeue(of, "empty")) for _ in range(3)), of.run(wrong), return_exceptions=True
            )

    *answers, refused = asyncio.run(ask())
    assert answers == [[]] * 3
    assert isinstance(refused, TickwheelError)
    assert "WRONGTYPE" in str(refused)


def test_a_refused_call_costs_no_other_call_its_lease(tickwheel_server: PrivateServer, server: Any) -> None:
    async def ask() -> list[Any]:
        async with namespace(tickwheel_server) as of:
            for _ in range(2):
                await of.run(enqueue_many(of.context, "one", [NewMessage()]))
                if not messages:
                    # From now on, the server has the scripts.
                    messages.extend(await of.run(dequeue(of, "one")))
                    await of.run(complete(of.context, messages))
            server.set("together:text", "x", ex=60)
            # Until the first call is answered, the next two wait, and become a group.
            first = of.run(send_request(Request(0, command=("GET", "together:none"))))
            wrong = of.run(send_request(Request(0, command=("HGET", "together:text", "f"))))
            return list(await asyncio.gather(first, of.run(dequeue(of, "one")), wrong, return_exceptions=True))

    messages: list[LeasedMessage] = []
    _, leased, error = asyncio.run(ask())
    assert isinstance(error, TickwheelError)
    assert len(leased) == 1


def test_a_call_that_is_cancelled_takes_no_other_calls_answer(tickwheel_server: PrivateServer) -> None:
    async def cancel_one() -> list[Any]:
        async with namespace(tickwheel_server) as of:
            await of.run(enqueue_many(of.context, "given-up", [NewMessage() for _ in range(CALLS)]))
            calls = [asyncio.create_task(of.run(dequeue(of, "given-up"))) for _ in range(CALLS)]
            await asyncio.sleep(0)
            calls[3].cancel()
            return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(cancel_one())
    assert isinstance(answers.pop(3), asyncio.CancelledError)
    assert len({message.id for messages in answers for message in messages}) == CALLS - 1


def test_dequeues_that_wait_for_an_equal_search_leave_room_for_other_answers(
    tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with namespace(tickwheel_server) as of:
            await of.run(enqueue_many(of.context, "searched", [NewMessage(metadata={"a": "1"})]))
            answer, asked, building = asyncio.Event(), asyncio.Event(), of._answers.building
            send = of._executor.uncoalesced.round

            async def hang(requests: list[Request], *args: Any, **options: Any) -> list[Reply]:
                if any(request.call and request.call.script.name == "dequeue" for request in requests):
                    asked.set()
                    await answer.wait()
                return await send(requests, *args, **options)

            monkeypatch.setattr(of._executor.uncoalesced, "round", hang)
            options = DequeueOptions.parse(1, where={"a": "1"}, wait=timedelta(seconds=30))
            waiting = [asyncio.create_task(of.dequeue(Dequeue(of.context, "searched", options)))]
            await asked.wait()
            size = building.total
            waiting += [asyncio.create_task(of.dequeue(Dequeue(of.context, "searched", options))) for _ in range(CALLS)]
            [group] = of.wakeups._subscriptions._searches._groups.values()
            # One more may search each second.
            await eventually_in_task(lambda: len(group.queued) >= CALLS - 2, "the calls wait for the first search")
            assert building.total <= 3 * size
            answer.set()
            await eventually_in_task(lambda: sum(task.done() for task in waiting) == 1, "a call gets the message")
            await eventually_in_task(lambda: building.total == 0, "the others wait for further messages")
            await of.run(enqueue_many(of.context, "searched", [NewMessage(metadata={"a": "1"})] * CALLS))
            assert all(await asyncio.gather(*waiting))
            assert building.total == 0

    asyncio.run(work())


def test_a_group_with_long_calls_is_compared_with_the_other_groups_of_its_server() -> None:
    """On a slow network, all groups last long."""
    sizes = coalescing_executor._GroupSizes()
    for _ in range(100):
        sizes.on_short_group(0.1)
    sizes.on_long_group(4, 0.105)
    assert sizes.long_calls_max == 5
    # The group did not use its limit.
    sizes.on_long_group(4, 0.105)
    assert sizes.long_calls_max == 5
    for calls in range(5, 100):
        sizes.on_long_group(calls, 0.105)
    assert sizes.long_calls_max == 32
    sizes.on_long_group(32, 0.125)
    assert sizes.long_calls_max == 16
    for _ in range(5):
        sizes.on_long_group(16, 0.2)
    assert sizes.long_calls_max == 4


@pytest.mark.parametrize("script", ["dequeue", "peek_orders"])
@pytest.mark.parametrize(
    ("exclusive_key", "filters", "is_long"),
    [("a", {}, False), ("a", {"a": "1"}, True), (None, {"a": "1"}, False), (None, {"a": "1", "b": "1"}, True)],
)
def test_only_filters_that_read_many_entries_make_a_call_long(
    script: str, exclusive_key: str | None, filters: dict[str, str], is_long: bool
) -> None:
    where = encode_filters(filters) if filters else b""
    arguments = [QueueConfig(exclusive_key=exclusive_key).context(0), b"", b"", where]
    call = NamespaceContext("tw").call(script, 0, "jobs", arguments, "session")
    assert coalescing_executor._is_long(Request(0, call=call)) is is_long


def test_the_average_of_short_groups_follows_a_slow_network_and_not_one_group_that_hangs() -> None:
    sizes = coalescing_executor._GroupSizes()
    sizes.on_short_group(30.0)
    assert sizes.short_s < 0.02
    for _ in range(60):
        sizes.on_short_group(0.3)
    assert 0.29 < sizes.short_s <= 0.3
