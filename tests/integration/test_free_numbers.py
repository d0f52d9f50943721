"""Many calls at once create queues when all numbers were given: one search finds the numbers for all of them."""

import asyncio
import os
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.service_namespace import open_namespace
from tests.support.command_stats import calls_of
from tests.support.held_plan import HeldPlan
from tickwheel import Tickwheel, TickwheelError, limits
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations import queues
from tickwheel.operations.removal import queue_numbers
from tickwheel.operations.removal.queue_numbers import (
    numbers_in_history,
    placeholder_name,
    placeholder_settings,
    prepare_number,
)
from tickwheel.operations.removal.queue_pages import PAGE_ROWS
from tickwheel.service.namespaces import Namespace
from tickwheel.storage.keys import namespace_key, queues_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

NAMESPACE = "free-numbers"
CALLS = 40


@pytest.fixture
def tickwheel(tickwheel_server: PrivateServer) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=NAMESPACE, shards=2, drive=False) as tickwheel:
        yield tickwheel
    tickwheel_server.clear(NAMESPACE)


def give_all_numbers(server: Any, monkeypatch: pytest.MonkeyPatch, existing: int, deleted: int) -> None:
    """Store rows as if queues with these numbers of rows had been created, and some of them deleted."""
    monkeypatch.setattr(limits, "QUEUES_MAX", existing + deleted)
    rows: dict[str, bytes] = {}
    for number in range(1, existing + deleted + 1):
        uid = os.urandom(4)
        name = f"q{number}" if number <= existing else placeholder_name(number, uid)
        settings = QueueConfig().to_bytes() if number <= existing else placeholder_settings()
        rows[name] = struct.pack(">I4sH", 1, uid, number) + settings
    server.hset(queues_key(NAMESPACE), mapping=rows)
    server.hset(namespace_key(NAMESPACE), mapping={"queue_numbers": existing + deleted, "deleted_queues": deleted})


async def create(of: Namespace, name: str) -> int:
    """Create a queue, and return its number."""
    return (await of.run(queues.create(of.context, name, {}))).number


def test_calls_at_the_same_time_share_one_search_and_take_different_numbers(
    tickwheel_server: PrivateServer, tickwheel: Tickwheel, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_all_numbers(server, monkeypatch, 2, CALLS)

    async def create_all() -> tuple[list[int], list[int]]:
        async with open_namespace(tickwheel_server, NAMESPACE) as of:
            before = [calls_of(server, name) for name in ("hscan", "hgetall", "evalsha")]
            numbers = await asyncio.gather(*(create(of, f"new{n}") for n in range(CALLS)))
            after = [calls_of(server, name) for name in ("hscan", "hgetall", "evalsha")]
            return numbers, [now - then for then, now in zip(before, after, strict=True)]

    numbers, (pages, whole, scripts) = asyncio.run(create_all())
    assert sorted(numbers) == list(range(3, CALLS + 3))
    assert (pages, whole) == (1, 0)
    # Two calls of `create_queue`, and on each of the two shards the versions of the placeholder and of the queue. Calls
    # that begin before the server has their script are sent twice: one of `create_queue`, and two for the placeholder.
    assert scripts <= (6 + 3) * CALLS


def test_a_search_reads_pages_and_decodes_no_existing_queue(
    tickwheel: Tickwheel, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    existing = 8 * PAGE_ROWS
    give_all_numbers(server, monkeypatch, existing, 1)
    decoded: list[str] = []
    decode = QueueConfig.from_bytes

    def record(queue: str, data: bytes) -> QueueConfig:
        decoded.append(queue)
        return decode(queue, data)

    monkeypatch.setattr(QueueConfig, "from_bytes", record)
    before = calls_of(server, "hscan")
    assert tickwheel.create_queue("new").config().number == existing + 1
    assert 1 < calls_of(server, "hscan") - before <= 9
    assert set(decoded) == {"new"}


def test_the_events_of_a_queue_that_is_deleted_during_the_search_are_removed(
    tickwheel: Tickwheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 2)
    for name in ("deleted", "old"):
        tickwheel.create_queue(name)
    tickwheel.queue("deleted").enqueue(id="m")
    tickwheel.delete_queue("deleted", purge=True)
    creation = HeldPlan(tickwheel, queues.create(tickwheel._context, "new", {}))
    assert creation.run_until_command("HSCAN")
    tickwheel.queue("old").enqueue(id="m")
    tickwheel.delete_queue("old", purge=True)
    assert set(tickwheel._run(numbers_in_history(tickwheel._context))) == {1, 2}
    number = creation.finish().number
    assert number not in tickwheel._run(numbers_in_history(tickwheel._context))


def test_a_number_without_events_is_preferred(
    tickwheel: Tickwheel, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tickwheel.create_queue("old").enqueue(id="m")
    tickwheel.delete_queue("old", purge=True)
    for number in (2, 3):
        stored = struct.pack(">I4sH", 1, b"uid_", number) + placeholder_settings()
        server.hset(queues_key(NAMESPACE), placeholder_name(number, b"uid_"), stored)
    monkeypatch.setattr(limits, "QUEUES_MAX", 3)
    server.hset(namespace_key(NAMESPACE), mapping={"queue_numbers": 3, "deleted_queues": 3})
    assert {tickwheel.create_queue(name).config().number for name in "ab"} == {2, 3}
    assert set(tickwheel._run(numbers_in_history(tickwheel._context))) == {1}
    assert tickwheel.create_queue("c").config().number == 1
    assert not tickwheel._run(numbers_in_history(tickwheel._context))


def test_a_search_ends_when_it_has_read_many_placeholders(
    tickwheel: Tickwheel, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_numbers, "_READ_MAX", PAGE_ROWS)
    give_all_numbers(server, monkeypatch, 0, 8 * PAGE_ROWS)
    before = calls_of(server, "hscan")
    tickwheel.create_queue("new")
    assert calls_of(server, "hscan") - before <= 4


def test_several_processes_find_different_numbers(
    tickwheel_server: PrivateServer, tickwheel: Tickwheel, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_all_numbers(server, monkeypatch, 0, CALLS)

    async def create_all() -> list[int]:
        async with (
            open_namespace(tickwheel_server, NAMESPACE) as one,
            open_namespace(tickwheel_server, NAMESPACE) as other,
        ):
            return await asyncio.gather(*(create((one, other)[n % 2], f"new{n}") for n in range(CALLS)))

    assert sorted(asyncio.run(create_all())) == list(range(1, CALLS + 1))


def test_a_cancelled_search_delays_no_other_call(
    tickwheel_server: PrivateServer, tickwheel: Tickwheel, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_all_numbers(server, monkeypatch, 0, 3)

    async def cancel_the_search() -> list[int]:
        async with open_namespace(tickwheel_server, NAMESPACE) as of:
            searching = asyncio.create_task(of.run(prepare_number(of.context)))
            await asyncio.sleep(0)
            assert not of.context.free_numbers.begin_search()
            others = [asyncio.create_task(create(of, f"new{n}")) for n in range(2)]
            searching.cancel()
            await asyncio.wait([searching])
            assert searching.cancelled()
            return await asyncio.gather(*others)

    assert len(set(asyncio.run(cancel_the_search()))) == 2


def test_each_call_fails_if_there_is_no_deleted_queue(
    tickwheel_server: PrivateServer, tickwheel: Tickwheel, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_all_numbers(server, monkeypatch, 3, 0)
    # The counter promises a placeholder that does not exist.
    server.hset(namespace_key(NAMESPACE), "deleted_queues", 1)

    async def create_all() -> list[Any]:
        async with open_namespace(tickwheel_server, NAMESPACE) as of:
            return await asyncio.gather(*(create(of, f"new{n}") for n in range(3)), return_exceptions=True)

    for error in asyncio.run(create_all()):
        assert isinstance(error, TickwheelError)
        assert "at most 3 queues" in str(error)
