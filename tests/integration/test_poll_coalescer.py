"""Dequeue calls of the service that do not wait: one poll checks the queue for all; each call gets its own messages."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.integration.service_namespace import make_dequeue, open_namespace
from tickwheel import NewMessage, QueueBlocked
from tickwheel.model.message import LeasedMessage
from tickwheel.operations.enqueue import enqueue_many
from tickwheel.operations.inspect import counts
from tickwheel.operations.queues import block, ensure
from tickwheel.service.batching.poll_coalescer import PollCoalescer
from tickwheel.service.call_limits import PLACE
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

CALLS = 32


def calls_of(client: Any) -> int:
    """Count the commands that poll for messages."""
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "exists"))


def polled(server: PrivateServer, messages: int, limit: int) -> tuple[list[list[LeasedMessage]], int]:
    """Return the messages of each call, and the number of commands."""

    async def poll() -> tuple[list[list[LeasedMessage]], int]:
        async with open_namespace(server, "polling") as of:
            queue = f"polled-{messages}-{limit}"
            await of.run(ensure(of.context, queue))
            # This poll records that the queue was empty.
            assert await of.poll_coalescer.dequeue(make_dequeue(of, queue)) == []
            await of.run(enqueue_many(of.context, queue, [NewMessage() for _ in range(messages)]))
            with server.client() as client:
                before = calls_of(client)
                answers = await asyncio.gather(
                    *(of.poll_coalescer.dequeue(make_dequeue(of, queue, limit=limit)) for _ in range(CALLS))
                )
                return list(answers), calls_of(client) - before

    return asyncio.run(poll())


def test_one_poll_checks_an_empty_queue_for_all_callers(tickwheel_server: PrivateServer) -> None:
    answers, commands = polled(tickwheel_server, 0, 10)
    assert answers == [[]] * CALLS
    assert commands <= 3


def test_callers_share_no_check_because_a_check_waits_behind_the_other_reads_of_its_caller(
    tickwheel_server: PrivateServer,
) -> None:
    checked_by: list[str] = []

    async def check(plan: Any) -> bool:
        plan.close()
        checked_by.append(PLACE.get()[0])
        return False

    async def poll() -> None:
        async with open_namespace(tickwheel_server, "polling") as of:
            coalescer = PollCoalescer(check, of.dequeue)

            async def poll_as(caller: str) -> None:
                PLACE.set((caller, None))
                assert await coalescer.dequeue(make_dequeue(of, "polled-by-two")) == []

            await asyncio.gather(*(poll_as(caller) for caller in "aaabbb"))

    asyncio.run(poll())
    assert set(checked_by) == {"a", "b"}


@pytest.mark.parametrize(("messages", "limit"), [(CALLS, 1), (5, 1), (100, 10), (1, 10)])
def test_each_message_goes_to_one_of_the_polls_and_none_is_left(
    tickwheel_server: PrivateServer, messages: int, limit: int
) -> None:
    answers, _ = polled(tickwheel_server, messages, limit)
    assert max(map(len, answers)) <= limit
    ids = [message.id for part in answers for message in part]
    assert len(ids) == len(set(ids)) == messages


def test_all_polls_report_that_the_queue_is_blocked(tickwheel_server: PrivateServer) -> None:
    async def poll() -> list[Any]:
        async with open_namespace(tickwheel_server, "polling") as of:
            await of.run(ensure(of.context, "blocked"))
            await of.run(block(of.context, "blocked", True, enqueue=False, dequeue=True))
            calls: list[Coroutine[Any, Any, Any]] = [
                of.poll_coalescer.dequeue(make_dequeue(of, "blocked")) for _ in range(CALLS)
            ]
            return await asyncio.gather(*calls, return_exceptions=True)

    assert {type(answer) for answer in asyncio.run(poll())} == {QueueBlocked}


def test_a_poll_cancelled_during_the_check_of_another_receives_nothing(tickwheel_server: PrivateServer) -> None:
    async def poll() -> tuple[list[Any], int]:
        async with open_namespace(tickwheel_server, "polling") as of:
            await of.run(enqueue_many(of.context, "left", [NewMessage() for _ in range(CALLS)]))
            looking, goes_on = asyncio.Event(), asyncio.Event()

            async def run(plan: Any) -> Any:
                looking.set()
                await goes_on.wait()
                return await of.run(plan)

            polling = PollCoalescer(run, lambda dequeue: run(dequeue.plan(LeasedMessage)))
            calls = [asyncio.create_task(polling.dequeue(make_dequeue(of, "left"))) for _ in range(CALLS)]
            await looking.wait()
            for call in calls[1:]:
                call.cancel()
            goes_on.set()
            answers = await asyncio.gather(*calls, return_exceptions=True)
            return answers, (await of.run(counts(of.context, "left")))["running"]

    answers, running = asyncio.run(poll())
    assert len(answers[0]) == running == 1


def test_a_cancelled_poll_takes_no_other_polls_answer(tickwheel_server: PrivateServer) -> None:
    async def poll() -> list[Any]:
        async with open_namespace(tickwheel_server, "polling") as of:
            await of.run(enqueue_many(of.context, "given-up", [NewMessage() for _ in range(CALLS)]))
            calls = [asyncio.create_task(of.poll_coalescer.dequeue(make_dequeue(of, "given-up"))) for _ in range(CALLS)]
            await asyncio.sleep(0)
            calls[3].cancel()
            return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(poll())
    assert isinstance(answers.pop(3), asyncio.CancelledError)
    assert [len(messages) for messages in answers] == [1] * (CALLS - 1)
