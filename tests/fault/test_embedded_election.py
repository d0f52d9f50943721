"""No event process with an election by lease takes the shards of a data directory over: they keep their lock file."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.fault.event_processes import EventProcessChild
from tests.fault.shard_owners import Owners
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.operations.shard_status import reset_epoch
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

SHARDS = 2
REMEDY = "whose event processes elect leaders by a lock file: run `tickwheel events --data-dir DIR` without --election"
Start = Callable[[str, str], EventProcessChild]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start event processes with an election by lease, and kill them at the end of the test."""
    with ExitStack() as stack:

        def start_process(url: str, namespace: str) -> EventProcessChild:
            log = tmp_path / f"process {len(list(tmp_path.iterdir()))}"
            return stack.enter_context(EventProcessChild(url, namespace, log, election="lease"))

        yield start_process


def connect(tickwheel: Tickwheel) -> Any:
    server = tickwheel._processes.server
    assert server is not None
    return redis.Redis.from_url(server.url)


def url_of(tickwheel: Tickwheel) -> str:
    """Return the URL of the socket, as a process that does not know the data directory uses it."""
    server = tickwheel._processes.server
    assert server is not None
    return server.url


def assert_refused(process: EventProcessChild) -> None:
    assert process.wait(20) == 1
    assert REMEDY in process.log


def assert_driven(tickwheel: Tickwheel) -> None:
    queue = tickwheel.queue("jobs")
    queue.enqueue(delay=timedelta(milliseconds=50))
    [message] = queue.dequeue(wait=timedelta(seconds=20))
    message.complete()


def test_a_claim_by_lease_is_refused_on_the_socket_of_a_data_directory_whose_event_process_drives_on(
    start: Start, tmp_path: Path
) -> None:
    with Tickwheel(data_dir=tmp_path / "data", shards=SHARDS) as tickwheel, connect(tickwheel) as server:
        owners = Owners(tickwheel, server)
        eventually(lambda: all(owners.now()), "the event process of the directory drives")
        fences, names = owners.fences(), owners.now()
        assert_refused(start(url_of(tickwheel), "tw"))
        assert_driven(tickwheel)
        # The event process of the directory was not deposed.
        assert (owners.fences(), owners.now()) == (fences, names)
        assert owners.read("election") == ["lockfile"] * SHARDS


def test_a_claim_by_lease_is_refused_before_an_event_process_has_ever_driven_the_directory(
    start: Start, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    with Tickwheel(data_dir=data_dir, shards=SHARDS, drive=False) as tickwheel, connect(tickwheel) as server:
        assert_refused(start(url_of(tickwheel), "tw"))
        assert Owners(tickwheel, server).read("election") == [""] * SHARDS
    with Tickwheel(data_dir=data_dir) as tickwheel:
        assert_driven(tickwheel)


def test_each_claim_of_a_data_directory_excludes_an_election_by_lease_again(start: Start, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with Tickwheel(data_dir=data_dir, shards=SHARDS, drive=False) as tickwheel, connect(tickwheel) as server:
        # The reset does not know whether the data was copied. Data of earlier versions does not have the field either.
        for shard in range(SHARDS):
            tickwheel._run(reset_epoch(tickwheel._context, shard))
        assert Owners(tickwheel, server).read("embedded") == [""] * SHARDS
        with Tickwheel(data_dir=data_dir) as driving:
            eventually(lambda: Owners(driving, server).read("embedded") == ["1"] * SHARDS, "all shards are claimed")
            assert_refused(start(url_of(tickwheel), "tw"))
            assert_driven(driving)


def test_data_that_was_copied_from_a_data_directory_to_a_server_needs_a_reset(
    start: Start, tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=SHARDS) as tickwheel:
        for shard in range(SHARDS):
            server.hset(shard_key(namespace, shard, "clock"), "embedded", 1)
        assert_refused(start(tickwheel_server.url, namespace))
        for shard in range(SHARDS):
            tickwheel._run(reset_epoch(tickwheel._context, shard))
        Owners(tickwheel, server).settle(start(tickwheel_server.url, namespace))
        assert_driven(tickwheel)
