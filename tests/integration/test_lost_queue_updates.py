"""The metadata shard loses updates of a queue in a failover, and the other shards have the lost versions."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import NewMessage, Tickwheel, limits
from tickwheel.operations.dispatch import push_config_version
from tickwheel.operations.removal.queue_numbers import LAST_VERSION, prepare_number, read_configs
from tickwheel.storage.keys import queue_key, queues_key
from tickwheel.testing import PrivateServer, VirtualClock

pytestmark = pytest.mark.integration

SECOND = timedelta(seconds=1)
IDS = [f"m{n}" for n in range(20)]


@pytest.fixture
def connect(tw: Tickwheel, tickwheel_server: PrivateServer) -> Iterator[Callable[[], Tickwheel]]:
    """Open other clients of the test's namespace."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(
            Tickwheel(tickwheel_server.url, namespace=tw._context.namespace, clock="_clock_test")
        )


@pytest.fixture
def lose_updates(server: Any, connect: Callable[[], Tickwheel]) -> Callable[[], Tickwheel]:
    """Update the queue "q" twice, and lose the updates on the metadata shard. Return the client that made them."""

    def lose() -> Tickwheel:
        updater = connect()
        key = queues_key(updater._context.namespace)
        row = server.hget(key, "q")
        for attempts in (7, 8):
            updater.create_queue("q", max_attempts=attempts, update=True)
        server.hset(key, "q", row)
        return updater

    return lose


def test_every_client_uses_the_settings_that_the_metadata_shard_still_has(
    tw: Tickwheel, connect: Callable[[], Tickwheel], lose_updates: Callable[[], Tickwheel]
) -> None:
    tw.create_queue("q", max_attempts=1)
    updater = lose_updates()
    results = connect().queue("q").enqueue_many(NewMessage(id=id) for id in IDS)
    assert [result.created for result in results] == [True] * 20
    for client in (connect(), updater):
        messages = client.queue("q").dequeue(limit=10)
        assert [message.fail() for message in messages] == ["errored"] * 10


def test_timers_fire(tw: Tickwheel, clock: VirtualClock, lose_updates: Callable[[], Tickwheel]) -> None:
    queue = tw.create_queue("q")
    queue.enqueue_many(NewMessage(id=id, delay=SECOND) for id in IDS)
    lose_updates()
    clock.advance(SECOND)
    assert queue.counts()["pending"] == 20


def test_the_next_update_reaches_every_shard(
    tw: Tickwheel, server: Any, connect: Callable[[], Tickwheel], lose_updates: Callable[[], Tickwheel]
) -> None:
    tw.create_queue("q")
    lose_updates()
    client = connect()
    client.create_queue("q", lease=10 * SECOND, update=True)
    context = client._context
    stored = client._run(context.fetch_config("q"))
    assert stored.lease_ms == 10_000
    keys = [queue_key(context.namespace, shard, "q", "config") for shard in range(context.shards)]
    assert {server.hget(key, "version") for key in keys} == {stored.packed_version}


def test_the_log_has_one_warning(
    tw: Tickwheel,
    connect: Callable[[], Tickwheel],
    lose_updates: Callable[[], Tickwheel],
    caplog: pytest.LogCaptureFixture,
) -> None:
    tw.create_queue("q")
    lose_updates()
    with caplog.at_level(logging.WARNING, "tickwheel.operations"):
        for client in (connect(), connect()):
            client.queue("q").enqueue_many([NewMessage()] * 20)
    assert ["lost an update of queue q" in record.message for record in caplog.records] == [True]


def test_the_version_of_a_deleted_queue_is_not_raised_while_its_number_is_prepared(
    tw: Tickwheel, connect: Callable[[], Tickwheel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 1)
    tw.create_queue("q")
    tw.delete_queue("q")
    client = connect()
    name = client._run(prepare_number(client._context))
    before = client._run(read_configs(client._context))[name]
    assert before.version < LAST_VERSION
    # As an event process does for a timer of the deleted queue.
    client._run(push_config_version(client._context, name, before, range(client._context.shards)))
    assert client._run(read_configs(client._context))[name] == before
    assert tw.create_queue("new").config().number == before.number
