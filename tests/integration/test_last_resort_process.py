"""A process of last resort on a server: it stands by, hears of changes of queues, and notices a deletion."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.wait_until import eventually
from tickwheel import NamespaceInUse, Tickwheel
from tickwheel.driver.queue_lookup import NamespaceLost
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.election.lease_row import EVENT_PROCESS, LAST_RESORT, Row
from tickwheel.embedded import EmbeddedServer
from tickwheel.errors import TickwheelError
from tickwheel.event_process import EventProcess, namespace_watch, obstacle_watch
from tickwheel.event_process.assembly import open_event_process
from tickwheel.event_process.last_resort import run_last_resort
from tickwheel.event_process.obstacle_watch import ObstacleWatch
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.driving.obstacles import Obstacle, find_sink
from tickwheel.operations.removal.delete_namespace import delete_namespace
from tickwheel.operations.shard_status import shard_statuses
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.storage.keys import election_key, shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

SHARDS = 2


@pytest.fixture
def client(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=SHARDS) as client:
        yield client


class Running:
    """An event process in a thread. ``error`` has ended it."""

    def __init__(self, run: Any) -> None:
        self.error: BaseException | None = None
        self._run = run
        self.thread = threading.Thread(target=self._run_program)
        self.thread.start()

    def _run_program(self) -> None:
        try:
            self._run()
        except TickwheelError as error:
            self.error = error


@contextmanager
def run_member(url: str, namespace: str, options: LeaseOptions) -> Iterator[Running]:
    with open_event_process(url, namespace, options) as process:
        running = Running(process.run)
        try:
            yield running
        finally:
            process.stop()
            running.thread.join(20)
    assert not running.thread.is_alive()


def rows(server: Any, namespace: str) -> list[Row]:
    stored = server.hgetall(election_key(namespace))
    return [Row.unpack(row) for member, row in stored.items() if member != b"assignment"]


def stored_keys(server: Any, namespace: str) -> list[bytes]:
    return list(server.scan_iter(f"{namespace}:*"))


def listeners(server: Any, namespace: str) -> int:
    """Return the number of processes that hear of changes of queues."""
    [_, count] = server.execute_command("PUBSUB", "SHARDNUMSUB", shard_key(namespace, 0, "adopted"))
    return int(count)


def elections(server: Any, namespace: str) -> set[bytes | None]:
    return {server.hget(shard_key(namespace, shard, "clock"), "election") for shard in range(SHARDS)}


def test_a_process_of_last_resort_stands_by_in_a_new_namespace_until_an_event_process_has_decided_its_kind(
    client: Tickwheel, tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    first, last = (LeaseOptions(1.0, rank) for rank in (EVENT_PROCESS, LAST_RESORT))
    with run_member(tickwheel_server.url, namespace, last):
        # All shards are assigned to the process, which claims none of them.
        eventually(lambda: any(len(row.wants) == SHARDS for row in rows(server, namespace)), "it stands by")
        beat = rows(server, namespace)[0].beat
        eventually(lambda: rows(server, namespace)[0].beat > beat + 8, "it has taken part for two leases")
        assert elections(server, namespace) == {None}
        with run_member(tickwheel_server.url, namespace, first):
            eventually(lambda: elections(server, namespace) == {b"lease"}, "the event process drives")
        # The kind is decided now, so nobody waits.
        eventually(lambda: any(len(row.drives) == SHARDS for row in rows(server, namespace)), "it drives", 14)


def test_a_row_has_the_lease_of_its_process(
    client: Tickwheel, tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    with run_member(tickwheel_server.url, namespace, LeaseOptions(30.0)):
        eventually(lambda: rows(server, namespace), "it takes part")
        assert [row.lease_ms for row in rows(server, namespace)] == [30_000]


def test_a_namespace_with_a_process_that_stands_by_is_not_deleted(
    client: Tickwheel, tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    with run_member(tickwheel_server.url, namespace, LeaseOptions(1.0, LAST_RESORT)):
        eventually(lambda: rows(server, namespace), "it stands by")
        with pytest.raises(NamespaceInUse, match="take part in the election"):
            client.delete_namespace()
    assert client.queue("q").enqueue().created
    client.delete_namespace()
    assert stored_keys(server, namespace) == []


def test_a_process_that_stands_by_ends_when_the_namespace_is_deleted_and_leaves_no_key(
    client: Tickwheel,
    tickwheel_server: PrivateServer,
    namespace: str,
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(namespace_watch, "INTERVAL_S", 0.1)
    with run_member(tickwheel_server.url, namespace, LeaseOptions(1.0, LAST_RESORT)) as member:
        eventually(lambda: rows(server, namespace), "it stands by")
        client._run(delete_namespace(client._context))
        member.thread.join(20)
        assert isinstance(member.error, NamespaceLost)
    assert stored_keys(server, namespace) == []


class RecordingWatch:
    """A watch of obstacles that records what it reads."""

    def __init__(self, io: DriverExecutor, namespace: str) -> None:
        self.checks = 0
        self.read: list[list[str]] = []
        self.has_obstacle = threading.Event()
        self._io = io
        self._context = NamespaceContext(namespace)
        self.watch = ObstacleWatch(
            io,
            namespace,
            find=self._find,
            find_sink=self._find_sink,
            is_driving=lambda: self.is_driving(),
            on_obstacle=self.has_obstacle.set,
        )

    def is_driving(self) -> bool:
        return True

    def _find(self) -> None:
        self.checks += 1

    def _find_sink(self, queues: Sequence[str]) -> Obstacle | None:
        self.read.append([*queues])
        return self._io.run(find_sink(self._context, queues, topics=None))


@pytest.fixture
def recording(
    client: Tickwheel, tickwheel_server: PrivateServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RecordingWatch]:
    monkeypatch.setattr(obstacle_watch, "JITTER_MS", 20.0)
    with closing(DriverExecutor(ConnectionPools(tickwheel_server.url, 5.0), "the server", 5.0)) as io:
        recording = RecordingWatch(io, namespace)
        with closing(recording.watch):
            recording.watch.start()
            eventually(lambda: recording.checks, "the watch has begun")
            yield recording


def test_only_the_queues_that_have_changed_are_read(client: Tickwheel, recording: RecordingWatch) -> None:
    client.create_queue("a")
    eventually(lambda: ["a"] in recording.read, "the new queue is read")
    client.create_queue("b")
    eventually(lambda: ["b"] in recording.read, "the other new queue is read")
    client.delete_queue("a")
    eventually(lambda: recording.read[-1] == ["a"], "the deleted queue is read")
    client.create_queue("forwarded", sink="kafka://topic")
    assert recording.has_obstacle.wait(20)
    assert recording.checks == 1


def test_all_queues_are_read_after_a_change_that_an_earlier_version_has_published(
    recording: RecordingWatch, namespace: str, server: Any
) -> None:
    server.execute_command("SPUBLISH", shard_key(namespace, 0, "adopted"), "")
    eventually(lambda: recording.checks == 2, "the namespace is checked")
    assert recording.read == []


def test_a_process_that_begins_to_drive_after_a_change_checks_it_at_once(
    client: Tickwheel, recording: RecordingWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstacle_watch, "STANDBY_JITTER_MS", 600_000.0)
    monkeypatch.setattr(obstacle_watch, "_random", lambda: 1.0)
    asked: list[bool] = []

    def is_driving() -> bool:
        if recording.watch._changes:
            # The process stands by when the change arrives, and drives later.
            asked.append(len(asked) > 0)
            return asked[-1]
        return False

    monkeypatch.setattr(recording, "is_driving", is_driving)
    client.create_queue("forwarded", sink="kafka://topic")
    assert recording.has_obstacle.wait(20)
    assert asked[:2] == [False, True]


def test_all_candidates_end_soon_after_a_queue_has_got_a_sink(
    client: Tickwheel, tickwheel_server: PrivateServer, namespace: str, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A candidate that waited for this time would not end during the test.
    monkeypatch.setattr(obstacle_watch, "STANDBY_JITTER_MS", 600_000.0)
    monkeypatch.setattr(obstacle_watch, "_random", lambda: 1.0)
    processes: list[EventProcess] = []

    def run(process: EventProcess) -> None:
        processes.append(process)
        process.run()

    def run_candidate() -> None:
        run_last_resort(tickwheel_server.url, namespace, None, run, waits_for_unclaimed=False)

    candidates = [Running(run_candidate) for _ in range(3)]
    try:
        eventually(lambda: len(rows(server, namespace)) == 3, "all candidates take part")
        eventually(lambda: any(process.led_epochs() for process in processes), "one of them drives")
        eventually(lambda: listeners(server, namespace) == 3, "all of them listen")
        client.create_queue("forwarded", sink="kafka://topic")
        for candidate in candidates:
            candidate.thread.join(20)
        assert not any(candidate.thread.is_alive() for candidate in candidates)
    finally:
        for process in processes:
            process.stop()


def test_a_candidate_with_kafka_ends_when_a_queue_gets_a_sink_that_it_does_not_serve(
    client: Tickwheel, tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    client.create_queue("served", sink="kafka://mail.sent")
    processes: list[EventProcess] = []

    def run(process: EventProcess) -> None:
        processes.append(process)
        process.run()

    def run_candidate() -> None:
        run_last_resort(
            *(tickwheel_server.url, namespace, producers, run),
            sink_topics=["mail.*"],
            waits_for_unclaimed=False,
        )

    # Nothing is sent, so no broker is necessary.
    with closing(KafkaProducers("127.0.0.1:1", "transitions")) as producers:
        candidate = Running(run_candidate)
        try:
            eventually(lambda: any(len(process.led_epochs()) == SHARDS for process in processes), "it drives")
            # The forwarder of the shard listens, too.
            eventually(lambda: listeners(server, namespace) == 2, "it listens")
            client.create_queue("other", sink="kafka://reports")
            candidate.thread.join(20)
            assert not candidate.thread.is_alive()
        finally:
            for process in processes:
                process.stop()
            candidate.thread.join(20)


def test_a_row_that_no_version_writes_is_logged_once_and_removed(
    client: Tickwheel,
    tickwheel_server: PrivateServer,
    namespace: str,
    server: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.hset(election_key(namespace), "other", b"\0")
    with run_member(tickwheel_server.url, namespace, LeaseOptions(1.0)):
        eventually(lambda: not server.hexists(election_key(namespace), "other"), "the row is removed")
        eventually(lambda: elections(server, namespace) == {b"lease"}, "the process drives")
    assert caplog.text.count("a row that no version of Tickwheel writes") == 1


def test_a_client_that_must_drive_an_embedded_server_by_its_socket_drives_with_a_lock_file(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path, appendfsync="everysec")
    server.open()
    with closing(server), Tickwheel(server.url, drive=True) as tickwheel:
        queue = tickwheel.create_queue("jobs")
        queue.enqueue(b"", delay=timedelta(milliseconds=50))
        assert queue.dequeue(wait=timedelta(seconds=20))
        assert {status.election for status in tickwheel._run(shard_statuses(tickwheel._context))} == {"lockfile"}
