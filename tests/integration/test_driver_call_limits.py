"""One call of the event process does a bounded amount of work; the tests inspect each call."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integration.driver_calls import Execute, calls_of
from tickwheel import NewMessage, Tickwheel
from tickwheel.driver import filing, firing, shard_driver
from tickwheel.storage import timer
from tickwheel.storage.scripts import Call
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

FINAL, UNHANDLED = b"\0", b"\2"
MESSAGES = 300
# The number of entries that a message of a plain queue without pairs counts for.
WEIGHT = 4
# Twenty seconds after the start of a slot of every level below the highest: the slot covers the following minutes.
WITHIN_A_SLOT = datetime.fromtimestamp(60_000 * 64**4 / 1_000 + 20, UTC)


@pytest.mark.parametrize("script", ["promote", "expire"])
def test_a_call_handles_as_many_messages_as_its_entries_allow(
    tw: Tickwheel, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(firing, "CALL_ENTRIES", 5 * WEIGHT)
    handled: list[int] = []
    left: list[int] = []

    def count(call: Call, execute: Execute) -> Any:
        reply = execute(call)
        handled.append(reply[6:].count(FINAL))
        left.append(reply[6:].count(UNHANDLED))
        return reply

    queue = tw.create_queue("q", lease=timedelta(minutes=1))
    queue.enqueue_many(NewMessage(delay=timedelta(minutes=2)) for _ in range(MESSAGES))
    with calls_of(script, count):
        clock.advance(timedelta(minutes=2))
        assert len(queue.dequeue(limit=MESSAGES)) == MESSAGES
        clock.advance(timedelta(minutes=1))
    assert max(handled) == 5
    assert max(left) > 0
    assert sum(handled) == MESSAGES
    assert queue.counts()["pending"] == MESSAGES


@pytest.mark.tickwheel(now=WITHIN_A_SLOT - timedelta(hours=3))
def test_a_cascade_moves_as_many_timers_as_its_limit_in_chunks(
    tw: Tickwheel, clock: VirtualClock, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    enough, chunk = 60, 10
    monkeypatch.setattr(shard_driver, "CASCADE_TIMERS", enough)
    monkeypatch.setattr(shard_driver, "CHUNK_TIMERS", chunk)
    monkeypatch.setattr(filing, "CHUNK_TIMERS", chunk)
    moved: list[int] = []
    chunks: list[int] = []

    def sizes(key: str) -> list[int]:
        return [len(timer.unpack(packed)) for packed in server.lrange(key, 0, -1)]

    def record(call: Call, execute: Execute) -> Any:
        slot, *children = call.keys[2:]
        before = sum(sizes(slot))
        reply = execute(call)
        moved.append(before - sum(sizes(slot)))
        for child in children:
            chunks.extend(sizes(child))
        return reply

    queue = tw.create_queue("q")
    # Some timers come in bursts of the same time, some are scattered, so neighbours share a child slot or do not.
    delays = [timedelta(hours=3, milliseconds=n // 40 * 4_000 + n % 2 * n * 50) for n in range(MESSAGES)]
    queue.enqueue_many(NewMessage(delay=delay) for delay in delays)
    with calls_of("cascade_slot", record):
        clock.advance(timedelta(hours=4))
    assert enough <= max(moved) < enough + chunk
    assert max(chunks) == chunk
    assert queue.counts()["pending"] == MESSAGES


def test_a_slot_that_has_grown_is_not_dropped(
    tw: Tickwheel, clock: VirtualClock, server: Any, dump: Callable[[], Any]
) -> None:
    dropped = 0

    def push_and_retry(call: Call, execute: Execute) -> Any:
        """Act as a caller that has not read the last chunk."""
        nonlocal dropped
        slot = call.keys[2]
        length = server.llen(slot)
        server.rpush(slot, b"one more")
        before = dump()
        assert execute(call) == length + 1
        assert dump() == before
        server.rpop(slot)
        dropped += 1
        return execute(call)

    queue = tw.create_queue("q")
    queue.enqueue_many(NewMessage(delay=timedelta(hours=3)) for _ in range(3))
    with calls_of("drop_slot", push_and_retry):
        clock.advance(timedelta(hours=4))
    assert dropped > 0
