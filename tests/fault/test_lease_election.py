"""Event processes that elect leaders by lease are killed, frozen, cut off or stuck: others replace them."""

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.kafka import Kafka
from tests.fault.event_processes import EventProcessChild
from tests.fault.faulty_server import FaultyServer
from tests.fault.harness.relay import Relay
from tests.fault.shard_owners import LeaseOwners, enqueue, wait_until_pending
from tests.fault.test_relay_faults import Load, check_history
from tests.support.kafka_topics import read_json
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.election.lease_member import CALLS_PER_LEASE
from tickwheel.election.lease_row import Row
from tickwheel.relay.relay import STATS_INTERVAL_MS
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

        def start_process(*options: str, election: str | None = "lease", **more: Any) -> EventProcessChild:
            log = tmp_path / f"process {len(list(tmp_path.iterdir()))}"
            where = tickwheel_server.url, tickwheel._context.namespace, log
            return stack.enter_context(EventProcessChild(*where, *options, election=election, **more))

        yield start_process


@pytest.fixture
def leaders(tickwheel: Tickwheel, server: Any) -> LeaseOwners:
    return LeaseOwners(tickwheel, server)


def test_a_killed_leader_is_replaced_within_the_time_of_the_lease(
    tickwheel: Tickwheel, start: Start, leaders: LeaseOwners
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
    tickwheel: Tickwheel, start: Start, leaders: LeaseOwners, server: Any
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


def test_the_shard_of_a_loop_that_hangs_gets_another_leader(
    tickwheel: Tickwheel, start: Start, leaders: LeaseOwners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANG", str(tmp_path / "HANG"))
    hanging = start(module="tests.fault.hanging_event_process")
    leaders.settle(hanging)
    another = start()
    leaders.settle(hanging, another)
    (hang := tmp_path / "HANG").touch()
    eventually(lambda: leaders.read("owner")[0] == name_of(another), "another process drives the shard", 60)
    enqueue(tickwheel, 400, timedelta(seconds=1))
    wait_until_pending(tickwheel, 400)
    hang.unlink()
    leaders.settle(hanging, another, within=60)


def name_of(process: EventProcessChild) -> str:
    """Return the name of the process as it is stored in the shards that it drives."""
    return f"{socket.gethostname()}:{process.pid}"


class TestRelay:
    """The event processes relay the history."""

    @pytest.fixture
    def tickwheel(self, tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
        with Tickwheel(tickwheel_server.url, namespace=namespace, shards=SHARDS, history="relay") as client:
            yield client

    @pytest.mark.timeout(300)
    def test_the_shard_of_a_loop_that_hangs_gets_another_leader_although_its_relay_works(
        self,
        tickwheel: Tickwheel,
        start: Start,
        leaders: LeaseOwners,
        server: Any,
        kafka: Kafka,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        hang, relay = tmp_path / "HANG", Relay(kafka)
        monkeypatch.setenv("HANG", str(hang))
        hanging = start(*relay.arguments(), module="tests.fault.hanging_event_process")
        leaders.settle(hanging)
        another = start(*relay.arguments())
        leaders.settle(hanging, another)
        outbox = Outbox(server, tickwheel._context.namespace)
        load = Load(tickwheel.create_queue("jobs"))
        with load.running():
            eventually(lambda: len(load.done) > 200, "messages are completed")
            hang.touch()
            eventually(lambda: "the loop hangs" in hanging.log, "the loop hangs")
            assert leaders.now()[0] == name_of(hanging)
            fence, records = leaders.fences()[0], relay.records()
            wait_until_relayed(outbox, load, [0])
            assert relay.records() > records
            # The relay has published events of the shard under the fence of the loop that hangs.
            assert leaders.fences()[0] == fence

            eventually(lambda: leaders.now()[0] == name_of(another), "another process drives the shard", 60)
            # The relay of the former leader makes a call in each such interval. The first one is fenced.
            until = time.monotonic() + 3 * STATS_INTERVAL_MS / 1_000
            eventually(lambda: time.monotonic() > until, "the former relay has ended")
            first = load.enqueued
            eventually(lambda: load.enqueued > first + 200, "more messages are enqueued", 60)
            last = load.enqueued
            wait_until_relayed(outbox, load, range(SHARDS))
            hang.unlink()
            leaders.settle(hanging, another, within=60)
            wait_until_relayed(outbox, load, range(SHARDS))
        eventually(outbox.is_empty, "all events are relayed", 60)
        check_history(kafka, relay.topic, load.done)
        counts = Counter((value["id"], value["version"]) for _, value in read_json(kafka, relay.topic))
        published = {f"m{n}": [counts[f"m{n}", version] for version in (1, 2, 3)] for n in range(first, last)}
        assert {id for id, times in published.items() if times != [1, 1, 1]} == set()


class Outbox:
    """The events of all shards that wait for their relays."""

    def __init__(self, server: Any, namespace: str) -> None:
        self._server = server
        self._keys = [shard_key(namespace, shard, "events") for shard in range(SHARDS)]

    def read(self, shard: int) -> tuple[int, int]:
        """Return the number of entries that were ever added, and of those that the relay has removed."""
        about = self._server.xinfo_stream(self._keys[shard])
        return about["entries-added"], about["entries-added"] - about["length"]

    def is_empty(self) -> bool:
        return not any(self._server.xlen(key) for key in self._keys)


def wait_until_relayed(outbox: Outbox, load: Load, shards: Iterable[int]) -> None:
    """Wait until the messages that exist now are completed, and their events on these shards are relayed."""
    enqueued, before = load.enqueued, set(load.done)
    expected = {f"m{n}" for n in range(enqueued)} - before
    eventually(lambda: expected.issubset(load.done), "the messages are completed", 60, 0.02)
    for shard in shards:
        added, _ = outbox.read(shard)
        eventually(lambda n=shard, end=added: outbox.read(n)[1] >= end, f"shard {shard} is relayed", 60)  # type: ignore[misc]


def test_a_loop_that_waits_for_the_metadata_keeps_its_shard(
    tickwheel: Tickwheel,
    start: Start,
    leaders: LeaseOwners,
    server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (reading := tmp_path / "READING").touch()
    monkeypatch.setenv("READING", str(reading))
    waiting, another = start(module="tests.fault.reading_event_process"), start()
    leaders.settle(waiting, another)
    before = leaders.now(), leaders.fences()
    # Both processes read the new queue when its messages are due.
    enqueue(tickwheel, 400, timedelta(milliseconds=100))
    eventually(lambda: "reading" in waiting.log, "a loop reads the metadata")
    last = beats(server, tickwheel)
    eventually(
        lambda: all(beat >= last[member] + 3 * CALLS_PER_LEASE for member, beat in beats(server, tickwheel).items()),
        "both processes have taken part for three leases",
        60,
    )
    assert (leaders.now(), leaders.fences()) == before
    reading.unlink()
    wait_until_pending(tickwheel, 400)
    assert leaders.now() == before[0]


def beats(server: Any, tickwheel: Tickwheel) -> dict[bytes, int]:
    """Return the beat of each member of the election."""
    rows = server.hgetall(election_key(tickwheel._context.namespace))
    return {member: Row.unpack(row).beat for member, row in rows.items() if member != b"assignment"}


def test_a_server_that_freezes_while_loops_read_the_metadata_moves_no_shard(
    namespace: str, tmp_path: Path, faulty: FaultyServer
) -> None:
    with Tickwheel(faulty.url, namespace=namespace, shards=SHARDS) as tickwheel, faulty.client() as server:
        leaders = LeaseOwners(tickwheel, server)
        with (
            EventProcessChild(faulty.url, namespace, tmp_path / "one", election="lease") as one,
            EventProcessChild(faulty.url, namespace, tmp_path / "another", election="lease") as another,
        ):
            leaders.settle(one, another)
            before = leaders.now()
            enqueue(tickwheel, 400, timedelta(seconds=1))
            inboxes = [shard_key(namespace, shard, "inbox") for shard in range(SHARDS)]
            assert all(map(server.xlen, inboxes))
            with faulty.paused():
                # The messages fall due meanwhile, and the loops read the new queue: for longer than a lease.
                for process in (one, another):
                    eventually(lambda log=process: "lost; retrying" in log.log, "the calls have timed out", 60)  # type: ignore[misc]
            wait_until_pending(tickwheel, 400)
            eventually(lambda: all(leaders.now()), "all shards are driven")
            assert leaders.now() == before


def test_the_shards_of_an_event_process_with_lock_files_are_taken_over(
    tickwheel: Tickwheel, start: Start, leaders: LeaseOwners
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
    assert "ELECTION the shard is driven by the election kind lease: start this event process with that" in former.log
    # The way back needs `tickwheel shards reset-epoch`.
    again = start(election=None)
    assert again.wait(20) == 1
    assert "reset-epoch" in again.log
