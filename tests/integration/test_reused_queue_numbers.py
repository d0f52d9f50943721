"""A queue that gets the number of a deleted queue: no old event is left, and the old timers do no harm."""

from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from tests.support.outbox import read_outbox
from tickwheel import MessageNotFound, NewMessage, Queue, Tickwheel, limits
from tickwheel.doctor import audit
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.operations.removal.queue_numbers import numbers_in_history
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.runtime.time import monotonic_ms
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer, VirtualClock

pytestmark = pytest.mark.integration

HOUR = timedelta(hours=1)
MS = timedelta(milliseconds=1)
# The timers of messages whose incarnations differ by this number have the same generation, if the versions are equal.
INCARNATIONS = 2**16


def invisible(queue: Queue, time: timedelta) -> None:
    """Bring the message "m" to the state Invisible, until a time."""
    queue.enqueue(id="m", delay=time)


def running(queue: Queue, time: timedelta) -> None:
    """Bring the message "m" to the state Running, until a time."""
    queue.enqueue(id="m")
    assert len(queue.dequeue(lease=time)) == 1


def completed(queue: Queue, time: timedelta) -> None:
    """Bring the message "m" to the state Completed. The retention of the queue must be ``time``."""
    queue.enqueue(id="m")
    [message] = queue.dequeue()
    message.complete()


STATES = {"invisible": (invisible, "pending"), "running": (running, "pending"), "completed": (completed, None)}


@pytest.mark.parametrize("same_generation", [False, True], ids=["other-generation", "same-generation"])
@pytest.mark.parametrize("state", STATES)
def test_the_timers_of_a_deleted_queue_do_not_change_the_messages_of_the_queue_that_gets_its_number(
    tw: Tickwheel,
    direct_client: Tickwheel,
    clock: VirtualClock,
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    same_generation: bool,
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 1)
    bring, next_state = STATES[state]
    deleted = tw.create_queue("q", retention=HOUR)
    number = deleted.config().number
    bring(deleted, HOUR)
    former = incarnations(server, direct_client)
    assert tw.delete_queue("q", purge=True) == 1
    if same_generation:
        for shard in range(direct_client._context.shards):
            # As if 65,535 other messages had been enqueued.
            server.hincrby(shard_key(direct_client._context.namespace, shard, "clock"), "seq", INCARNATIONS - 1)

    queue = tw.create_queue("q", retention=2 * HOUR)
    assert queue.config().number == number
    bring(queue, 2 * HOUR)
    [incarnation] = incarnations(server, direct_client)
    assert {incarnation - before for before in former} == {INCARNATIONS if same_generation else 1}
    clock.advance(2 * HOUR - MS)
    assert queue.get("m").state == state
    assert direct_client._run(audit(direct_client._context)) == []
    clock.advance(MS)
    if next_state:
        assert queue.get("m").state == next_state
    else:
        with pytest.raises(MessageNotFound):
            queue.get("m")


def incarnations(server: Any, direct: Tickwheel) -> set[int]:
    return {item.incarnation for item in read_outbox(server, direct._context.namespace, direct._context.shards)}


def test_no_event_of_the_deleted_queue_is_left_when_its_number_is_given_again(
    tw: Tickwheel, direct_client: Tickwheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 2)
    kept, deleted = tw.create_queue("kept"), tw.create_queue("deleted")
    number = deleted.config().number
    for n in range(3):
        deleted.enqueue_many(NewMessage(id=f"{n}-{k}") for k in range(20))
        kept.enqueue_many(NewMessage(id=f"{n}-{k}") for k in range(20))
    tw.delete_queue("deleted", purge=True)
    kept.enqueue_many(NewMessage(id=f"after-{n}") for n in range(20))
    assert numbers_in_events(direct_client) == {kept.config().number, number}

    assert tw.create_queue("new").config().number == number
    assert numbers_in_events(direct_client) == {kept.config().number}


def numbers_in_events(direct: Tickwheel) -> set[int]:
    return set(direct._run(numbers_in_history(direct._context)))


@pytest.mark.parametrize("cached", ["queue", "placeholder"])
def test_an_event_process_does_not_confuse_the_queues_of_a_number(
    tickwheel_server: PrivateServer, direct_client: Tickwheel, monkeypatch: pytest.MonkeyPatch, cached: str
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 1)
    with closing(DriverExecutor(ConnectionPools(tickwheel_server.url), tickwheel_server.url, 10)) as io:
        directory = QueueDirectory(direct_client._context, io, clock=lambda: 0.0)
        number = direct_client.create_queue("old").config().number
        directory.queues_with_sinks(monotonic_ms())
        direct_client.delete_queue("old")
        if cached == "placeholder":
            directory.queues_with_sinks(monotonic_ms())
        direct_client.create_queue("new")
        before = directory.cached(number)
        assert directory.confirm([number], lambda _: True)
        after = directory.lookup(number)
    assert before is not None
    assert after is not None
    assert (before.name == "old") == (cached == "queue")
    assert after.name == "new"
