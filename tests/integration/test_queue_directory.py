"""The directory of queues of an event process: one read of all queues serves all shards, and a change reads one row."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import Tickwheel, limits
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.runtime.time import monotonic_ms
from tickwheel.storage.keys import namespace_key, queues_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

LOOPS = 16


@pytest.fixture
def directory(direct_client: Tickwheel, tickwheel_server: PrivateServer) -> Iterator[QueueDirectory]:
    with closing(DriverExecutor(ConnectionPools(tickwheel_server.url), tickwheel_server.url, 10)) as io:
        yield QueueDirectory(direct_client._context, io)


def count_reads(server: Any, call: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of the call, and how often the server read all queues meanwhile."""

    def reads() -> int:
        return int(server.info("commandstats").get("cmdstat_hgetall", {}).get("calls", 0))

    before = reads()
    result = call()
    return result, reads() - before


def test_a_new_queue_is_found_without_a_read_of_all_queues(
    direct_client: Tickwheel, directory: QueueDirectory, server: Any
) -> None:
    number = direct_client.create_queue("new").config().number
    found, reads = count_reads(server, lambda: directory.lookup(number))
    assert (found.name, reads) == ("new", 0)


def test_the_placeholder_of_a_deleted_queue_is_found_without_a_read_of_all_queues(
    direct_client: Tickwheel, directory: QueueDirectory, server: Any
) -> None:
    number = direct_client.create_queue("deleted").config().number
    direct_client.delete_queue("deleted")
    found, reads = count_reads(server, lambda: directory.lookup(number))
    assert (found.name.split(".")[:2], reads) == (["deleted", str(number)], 0)


@pytest.mark.parametrize("stored", ["other", "missing", b"\xff", "*"])
def test_a_wrong_name_of_a_number_is_not_trusted(
    direct_client: Tickwheel, directory: QueueDirectory, server: Any, stored: str | bytes
) -> None:
    direct_client.create_queue("other")
    number = direct_client.create_queue("new").config().number
    server.hset(namespace_key(direct_client._context.namespace), f"queue:{number}", stored)
    found, reads = count_reads(server, lambda: directory.lookup(number))
    assert (found.name, reads) == ("new", 1)


def test_loops_that_ask_for_a_new_queue_at_the_same_time_share_the_reads(
    direct_client: Tickwheel, directory: QueueDirectory, server: Any
) -> None:
    number = direct_client.create_queue("new").config().number
    # As if a client of an older version had created the queue.
    server.hdel(namespace_key(direct_client._context.namespace), f"queue:{number}")
    begin = threading.Barrier(LOOPS)

    def ask() -> str | None:
        begin.wait(30)
        found = directory.lookup(number)
        return None if found is None else found.name

    with ThreadPoolExecutor(LOOPS) as loops:
        found, reads = count_reads(
            server, lambda: [future.result() for future in [loops.submit(ask) for _ in range(LOOPS)]]
        )
    assert found == ["new"] * LOOPS
    assert reads == 1


def test_a_change_of_a_queue_reads_only_its_row(
    direct_client: Tickwheel, directory: QueueDirectory, server: Any
) -> None:
    number = direct_client.create_queue("changed").config().number
    before = directory.lookup(number)
    direct_client.create_queue("changed", update=True, lease=timedelta(seconds=7))
    after, reads = count_reads(server, lambda: directory.renew(number, 0))
    assert reads == 0
    assert before is not None
    assert after.context != before.context
    assert directory.cached(number) is after


def test_a_deleted_queue_is_noticed_when_its_version_is_renewed(
    direct_client: Tickwheel, directory: QueueDirectory, server: Any
) -> None:
    number = direct_client.create_queue("deleted").config().number
    directory.lookup(number)
    direct_client.delete_queue("deleted")
    ref, reads = count_reads(server, lambda: directory.renew(number, 0))
    # The placeholder has the number now, and its row is found alone.
    assert ref is not None
    assert (ref.name != "deleted", reads) == (True, 0)
    assert directory.renew(number, 0) == directory.cached(number) == ref


@pytest.mark.parametrize("cached", ["queue", "placeholder"])
def test_a_number_that_another_queue_has_is_forgotten_when_its_version_is_renewed(
    direct_client: Tickwheel, directory: QueueDirectory, server: Any, monkeypatch: pytest.MonkeyPatch, cached: str
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 1)
    number = direct_client.create_queue("deleted").config().number
    directory.lookup(number)
    direct_client.delete_queue("deleted")
    if cached == "placeholder":
        directory.renew(number, 0)
    direct_client.create_queue("new")
    ref, reads = count_reads(server, lambda: directory.renew(number, 0))
    assert (ref, reads, directory.cached(number)) == (None, 0, None)
    found = directory.lookup(number)
    assert found is not None
    assert found.name == "new"


def test_a_read_decodes_only_the_rows_that_have_changed(direct_client: Tickwheel, directory: QueueDirectory) -> None:
    same, changed = (direct_client.create_queue(name).config().number for name in ("same", "changed"))
    directory.queues_with_sinks(monotonic_ms())
    before = [directory.cached(number) for number in (same, changed)]
    direct_client.create_queue("changed", update=True, lease=timedelta(seconds=7))
    directory.queues_with_sinks(monotonic_ms())
    # A row that is decoded again is another object.
    assert directory.cached(same) is before[0]
    assert directory.cached(changed) != before[1]


def test_an_unreadable_row_is_reported_by_each_read_until_it_is_restored(
    direct_client: Tickwheel, directory: QueueDirectory, server: Any
) -> None:
    number = direct_client.create_queue("damaged").config().number
    key = queues_key(direct_client._context.namespace)
    stored = server.hget(key, "damaged")
    assert directory.lookup(number) is not None
    server.hset(key, "damaged", stored[:20])
    for _ in range(2):
        directory.queues_with_sinks(monotonic_ms())
        assert (directory.unreadable_rows, directory.cached(number)) == (1, None)
    server.hset(key, "damaged", stored)
    directory.queues_with_sinks(monotonic_ms())
    assert directory.cached(number) is not None
    assert directory.unreadable_rows == 0


def test_a_new_queue_whose_sink_the_process_cannot_serve_is_reported_once(
    direct_client: Tickwheel, directory: QueueDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    directory.lookup(direct_client.create_queue("forwarded", sink="kafka://topic").config().number)
    directory.queues_with_sinks(monotonic_ms())
    assert [line.split(",")[0] for line in caplog.messages] == ["queue forwarded has the sink kafka://topic"]
