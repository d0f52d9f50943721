"""Dequeue calls of the service that do not wait: one looks for all who ask together; each has messages of its own."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.integration.open_namespace import asked, open_namespace
from tickwheel import NewMessage, QueueBlocked
from tickwheel.message import LeasedMessage
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.enqueue import enqueue_many
from tickwheel.operations.queues import block, ensure
from tickwheel.service.namespaces import Namespace
from tickwheel.service.polling import Polling
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

CALLS = 32


class Counted:
    """Carries out dequeues, and counts them."""

    def __init__(self, of: Namespace) -> None:
        self._of = of
        self.count = 0

    async def take(self, asked: Dequeue) -> list[LeasedMessage]:
        self.count += 1
        return await self._of.take(asked)


def polled(server: PrivateServer, messages: int, limit: int) -> tuple[list[list[LeasedMessage]], int]:
    """What each of the calls was given, and how many looked."""

    async def poll() -> tuple[list[list[LeasedMessage]], int]:
        async with open_namespace(server, "polling") as of:
            queue = f"polled-{messages}-{limit}"
            await of.run(enqueue_many(of.core, queue, [NewMessage() for _ in range(messages)]))
            counted = Counted(of)
            polling = Polling(counted.take)
            found = await asyncio.gather(*(polling.take(asked(of, queue, limit=limit)) for _ in range(CALLS)))
            return list(found), counted.count

    return asyncio.run(poll())


def test_one_looks_for_all_where_nothing_is(tickwheel_server: PrivateServer) -> None:
    found, looked = polled(tickwheel_server, 0, 10)
    assert found == [[]] * CALLS
    assert looked <= 3


@pytest.mark.parametrize(("messages", "limit"), [(CALLS, 1), (5, 1), (100, 10), (1, 10)])
def test_each_message_goes_to_one_of_them_and_none_stays(
    tickwheel_server: PrivateServer, messages: int, limit: int
) -> None:
    found, _ = polled(tickwheel_server, messages, limit)
    assert max(map(len, found)) <= limit
    ids = [message.id for part in found for message in part]
    assert len(ids) == len(set(ids)) == messages


def test_all_hear_that_the_queue_is_blocked(tickwheel_server: PrivateServer) -> None:
    async def poll() -> list[Any]:
        async with open_namespace(tickwheel_server, "polling") as of:
            await of.run(ensure(of.core, "blocked"))
            await of.run(block(of.core, "blocked", True, enqueue=False, dequeue=True))
            calls: list[Coroutine[Any, Any, Any]] = [of.polling.take(asked(of, "blocked")) for _ in range(CALLS)]
            return await asyncio.gather(*calls, return_exceptions=True)

    assert {type(each) for each in asyncio.run(poll())} == {QueueBlocked}


@pytest.mark.parametrize("which", [1, 2, 7])
def test_what_one_of_them_is_refused_takes_nobodys_messages_away(tickwheel_server: PrivateServer, which: int) -> None:
    async def poll() -> list[Any]:
        async with open_namespace(tickwheel_server, "polling") as of:
            await of.run(enqueue_many(of.core, f"refused-{which}", [NewMessage() for _ in range(CALLS)]))
            taken = 0

            async def take(asked: Dequeue) -> list[LeasedMessage]:
                nonlocal taken
                taken += 1
                if taken == which:
                    raise QueueBlocked("a moment ago")
                return await of.take(asked)

            polling = Polling(take)
            calls = (polling.take(asked(of, f"refused-{which}")) for _ in range(CALLS))
            return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(poll())
    assert sum(isinstance(each, QueueBlocked) for each in found) == 1
    assert sum(len(each) for each in found if isinstance(each, list)) == CALLS - 1


def test_one_that_gives_up_takes_nobodys_answer_away(tickwheel_server: PrivateServer) -> None:
    async def poll() -> list[Any]:
        async with open_namespace(tickwheel_server, "polling") as of:
            await of.run(enqueue_many(of.core, "given-up", [NewMessage() for _ in range(CALLS)]))
            calls = [asyncio.create_task(of.polling.take(asked(of, "given-up"))) for _ in range(CALLS)]
            await asyncio.sleep(0)
            calls[3].cancel()
            return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(poll())
    assert isinstance(found.pop(3), asyncio.CancelledError)
    assert [len(messages) for messages in found] == [1] * (CALLS - 1)
