"""Event processes that elect leaders by lease are killed, frozen, cut off or stuck: others replace them."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Contents
from tests.fault.event_processes import EventProcessChild
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.shard_owners import Owners, enqueue, wait_until_pending
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.storage.keys import election_key, shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

SHARDS = 4
# The time after which a process that is killed or cut off is replaced, and the time that this may take.
LEASE_S = 4.0
REPLACED_S = 1.25 * LEASE_S + 1
Start = Callable[..., EventProcessChild]


@pytest.fixture
def tickwheel(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=SHARDS) as client:
        yield client


@pytest.fixture
def start(tickwheel: Tickwheel, tickwheel_server: PrivateServer, tmp_path: Path) -> Iterator[Start]:
    """Start event processes, and kill them at the end of the test."""
    with ExitStack() as stack:

        def start_process(
            url: str = tickwheel_server.url, election: str | None = "lease", **more: Any
        ) -> EventProcessChild:
            log = tmp_path / f"process {len(list(tmp_path.iterdir()))}"
            child = EventProcessChild(url, tickwheel._context.namespace, log, election=election, **more)
            return stack.enter_context(child)

        yield start_process


class Leaders(Owners):
    """The leader of each shard. A shard that was released keeps the name of its last leader, and has no holder."""

    def now(self) -> list[str]:
        """Return the name of each shard's leader; empty if the shard was released."""
        return [owner if holder else "" for owner, holder in zip(self.read("owner"), self.read("holder"), strict=True)]


@pytest.fixture
def leaders(tickwheel: Tickwheel, server: Any) -> Leaders:
    return Leaders(tickwheel, server)


def test_a_killed_leader_is_replaced_within_the_time_of_the_lease(
    tickwheel: Tickwheel, start: Start, leaders: Leaders
) -> None:
    one, another = start(), start()
    leaders.settle(one, another)
    enqueue(tickwheel, 400, timedelta(seconds=1))
    began = time.monotonic()
    one.kill()
    leaders.settle(another)
    # A busy machine may take longer: the time itself is a figure of the benchmark.
    assert time.monotonic() - began < 3 * REPLACED_S
    wait_until_pending(tickwheel, 400)
    third = start()
    leaders.settle(another, third)


def test_a_leader_that_is_stopped_hands_its_shards_over(
    tickwheel: Tickwheel, start: Start, leaders: Leaders, server: Any
) -> None:
    one, another = start(), start()
    leaders.settle(one, another)
    enqueue(tickwheel, 400, timedelta(seconds=1))
    assert one.stop(within=5.0) == 0
    # The process has left the election, so its successor did not wait for the end of a lease.
    assert len(server.hkeys(election_key(tickwheel._context.namespace))) == 2
    leaders.settle(another, within=LEASE_S / 2)
    wait_until_pending(tickwheel, 400)
    assert another.stop(within=5.0) == 0
    assert leaders.read("holder") == [""] * SHARDS


def test_a_leader_frozen_past_its_lease_changes_nothing_when_it_wakes(
    tickwheel: Tickwheel, start: Start, leaders: Leaders, contents: Contents
) -> None:
    frozen = start()
    leaders.settle(frozen)
    enqueue(tickwheel, 1_000, timedelta(seconds=2))
    frozen.pause()
    successor = start()
    leaders.settle(successor)
    wait_until_pending(tickwheel, 1_000)
    before = leaders.fences()
    frozen.resume()
    # The awakened process joins again, and gets a share. It has not touched the shards before.
    leaders.settle(frozen, successor, within=60)
    kept = [now == then for now, then in zip(leaders.fences(), before, strict=True)]
    assert kept.count(True) == SHARDS // 2
    enqueue(tickwheel, 100, timedelta(seconds=1))
    wait_until_pending(tickwheel, 1_100)


def test_a_leader_that_cannot_reach_the_server_is_replaced_until_it_reconnects(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, start: Start, leaders: Leaders
) -> None:
    with FlakyProxy(str(tickwheel_server.folder / "valkey.sock"), keeps_requests=False) as proxy:
        cut_off, another = start(proxy.url), start()
        leaders.settle(cut_off, another)
        proxy.stall()
        leaders.settle(another)
        enqueue(tickwheel, 400, timedelta(seconds=1))
        wait_until_pending(tickwheel, 400)
        proxy.go_on()
        leaders.settle(cut_off, another, within=60)


def test_the_shard_of_a_loop_that_hangs_gets_another_leader(
    tickwheel: Tickwheel, start: Start, leaders: Leaders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANG", str(tmp_path / "HANG"))
    hanging = start(module="tests.fault.hanging_event_process")
    leaders.settle(hanging)
    another = start()
    leaders.settle(hanging, another)
    (hang := tmp_path / "HANG").touch()
    name = f"{socket.gethostname()}:{another.pid}"
    eventually(lambda: leaders.read("owner")[0] == name, "another process drives the shard", 60)
    enqueue(tickwheel, 400, timedelta(seconds=1))
    wait_until_pending(tickwheel, 400)
    hang.unlink()
    leaders.settle(hanging, another, within=60)


def test_the_shards_of_an_event_process_with_lock_files_are_taken_over(
    tickwheel: Tickwheel, start: Start, leaders: Leaders
) -> None:
    former = start(election=None)
    eventually(lambda: leaders.read("election") == ["lockfile"] * SHARDS, "the former process drives")
    enqueue(tickwheel, 400, timedelta(seconds=1))
    present = start()
    leaders.settle(present)
    assert leaders.read("election") == ["lease"] * SHARDS
    enqueue(tickwheel, 400, timedelta(seconds=1))
    wait_until_pending(tickwheel, 800)
    assert former.wait(60) == 1
    # The way back needs `tickwheel shards reset-epoch`.
    again = start(election=None)
    assert again.wait(20) == 1
    assert "reset-epoch" in again.log


def test_shards_of_another_election_and_of_an_embedded_server_are_not_taken_over(
    tickwheel: Tickwheel, start: Start, leaders: Leaders, server: Any
) -> None:
    namespace = tickwheel._context.namespace
    for field, value in (("election", "zookeeper"), ("embedded", "1")):
        for shard in range(SHARDS):
            server.hset(shard_key(namespace, shard, "clock"), field, value)
        refused = start()
        assert refused.wait(20) == 1
        assert "ELECTION" in refused.log
        assert leaders.read("holder") == [""] * SHARDS
        for shard in range(SHARDS):
            server.hdel(shard_key(namespace, shard, "clock"), field)
