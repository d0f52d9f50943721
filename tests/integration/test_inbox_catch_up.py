"""An event process that catches up with a long inbox files the timers that it has read before it reads more."""

from datetime import timedelta
from typing import Any

import pytest

from tickwheel import NewMessage, Tickwheel
from tickwheel.driver import inbox_buffer, shard_driver
from tickwheel.driver.commands import ReadStream
from tickwheel.driver.inbox_buffer import FROM_START
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.storage import timer
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

CALLS, UNFILED = 600, 50


@pytest.mark.tickwheel(shards=1)
def test_no_more_entries_are_read_while_the_unfiled_timers_are_at_their_limit(
    tw: Tickwheel, clock: VirtualClock, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_driver, "UNFILED_TIMERS", UNFILED)
    # Timers are filed immediately, and more slowly than they are read.
    monkeypatch.setattr(inbox_buffer, "HURRY_TIMERS", UNFILED // 2)
    monkeypatch.setattr(shard_driver, "FILE_TIMERS", UNFILED // 10)
    unfiled: list[int] = []
    read_stream_now = ShardConnection.read_stream_now

    def count_unfiled(link: ShardConnection, command: ReadStream) -> Any:
        """Timers that were read and are not filed are still in the inbox, before the start of the next read."""
        if command.after != FROM_START:
            read = server.xrange(command.key, "-", command.after)
            unfiled.append(sum(len(timer.unpack(fields[b"t"])) for _, fields in read))
        return read_stream_now(link, command)

    queue = tw.create_queue("q")
    for _ in range(CALLS // 2):
        queue.enqueue_many([NewMessage(delay=timedelta(hours=3))] * 2)
    monkeypatch.setattr(ShardConnection, "read_stream_now", count_unfiled)
    clock.run_due()
    clock.advance(timedelta(hours=3))
    assert 0 < max(unfiled) < UNFILED
    assert queue.counts()["pending"] == CALLS
