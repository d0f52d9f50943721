"""A real event process on a real server in real time: on time, through broken connections, and alone."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.property.mutants import Mutant, load_mutant
from tests.support.recreated_namespace import recreate_namespace
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Queue, Tickwheel
from tickwheel.doctor import audit
from tickwheel.driver import corrupt_entries, server_clock, unknown_queues
from tickwheel.driver.queue_lookup import NamespaceLost
from tickwheel.errors import Fenced, TickwheelError, Unavailable
from tickwheel.event_process import EventProcess, LockFileElection, namespace_watch, reachability
from tickwheel.event_process.assembly import open_event_process
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.storage.keys import queues_key, shard_key
from tickwheel.storage.timer import Kind, Timer, pack
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

SECOND = timedelta(seconds=1)


class Driving:
    """An event process in a thread, and the error that ended it."""

    def __init__(self, process: EventProcess) -> None:
        self.process = process
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.process.run()
        except TickwheelError as error:
            self.error = error

    def epoch(self) -> int:
        return self.process.health()[0].epoch


@pytest.fixture
def jobs(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Queue]:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        yield tickwheel.create_queue("jobs")


@contextmanager
def run_driver(server: PrivateServer, namespace: str, lock: Path) -> Iterator[Driving]:
    with open_event_process(server.url, namespace, lock) as process:
        driving = Driving(process)
        try:
            yield driving
        finally:
            process.stop()
            driving.thread.join(10)
    assert not driving.thread.is_alive()


def test_a_message_is_deliverable_at_its_time_and_not_before(
    tickwheel_server: PrivateServer, namespace: str, jobs: Queue, tmp_path: Path
) -> None:
    with run_driver(tickwheel_server, namespace, tmp_path / "lock"):
        jobs.enqueue(delay=timedelta(milliseconds=150))
        assert jobs.dequeue() == []

        [message] = jobs.dequeue(wait=10 * SECOND)

    late = message.lease_until - timedelta(seconds=30) - message.due
    assert timedelta(0) <= late < timedelta(milliseconds=500)


def test_timers_beyond_the_levels_in_memory_are_kept(
    tickwheel_server: PrivateServer, namespace: str, jobs: Queue, tmp_path: Path
) -> None:
    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as driving:
        for delay in (1.2, 2.5, 6.0):
            jobs.enqueue(delay=timedelta(seconds=delay))
        eventually(lambda: driving.process.health()[0].filed_timers >= 2, "the timer is filed")

        for _ in range(3):
            [message] = jobs.dequeue(wait=12 * SECOND)
            message.complete()

        assert driving.process.health()[0].lateness_max_ms < 500


def test_the_event_process_survives_broken_connections_and_flushed_scripts_under_the_same_epoch(
    tickwheel_server: PrivateServer, namespace: str, jobs: Queue, tmp_path: Path, server: Any
) -> None:
    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as driving:
        eventually(driving.epoch, "driving")
        epoch = driving.epoch()
        for trouble in (server.script_flush, lambda: server.client_kill_filter(_type="normal", skipme=True)):
            jobs.enqueue(delay=timedelta(milliseconds=300))
            trouble()
            [message] = jobs.dequeue(wait=10 * SECOND)
            message.complete()
        assert driving.epoch() == epoch


def test_a_leader_keeps_a_shard_whose_connection_broke_after_any_silence_if_it_can_connect_again(
    tickwheel_server: PrivateServer,
    namespace: str,
    jobs: Queue,
    tmp_path: Path,
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For example, the server's clock steps back by an hour, so a blocking read gets no answer."""
    resign = Mock(return_value=False)
    monkeypatch.setattr(reachability, "RESIGN_AFTER_MS", 0)
    monkeypatch.setattr(LockFileElection, "resign", resign)
    caplog.set_level(logging.DEBUG, "tickwheel.event_process")
    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as driving:
        eventually(driving.epoch, "driving")
        server.client_kill_filter(_type="normal", skipme=True)
        eventually(lambda: "shard 0: lost; retrying" in caplog.text, "the driver notices")
        jobs.enqueue(delay=timedelta(milliseconds=50))
        assert len(jobs.dequeue(wait=10 * SECOND)) == 1
    resign.assert_not_called()


def test_the_event_process_survives_the_loss_of_all_stored_data_if_the_namespace_is_recreated_at_once(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path, server: Any
) -> None:
    with (
        run_driver(tickwheel_server, namespace, tmp_path / "lock") as driving,
        Tickwheel(tickwheel_server.url, namespace=namespace) as before,
    ):
        before.create_queue("before").enqueue(delay=timedelta(milliseconds=700))
        eventually(driving.epoch, "driving")
        recreate_namespace(tickwheel_server, namespace)

        with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
            queue = tickwheel.create_queue("after")
            queue.enqueue(delay=timedelta(milliseconds=50))
            assert len(queue.dequeue(wait=10 * SECOND)) == 1


def test_timers_of_a_queue_that_the_metadata_shard_has_lost_are_kept_until_the_queue_returns(
    tickwheel_server: PrivateServer,
    namespace: str,
    jobs: Queue,
    tmp_path: Path,
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unknown_queues, "UNKNOWN_MS", 50)
    jobs.enqueue(delay=timedelta(milliseconds=1))
    queues = queues_key(namespace)
    queues_before = server.hgetall(queues)
    server.delete(queues)
    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as driving:
        # After the second check.
        eventually(lambda: driving.process.health()[0].unknown_queue_timers >= 2, "the queue of the timer is unknown")
        assert driving.process.health()[0].in_memory == 0
        server.hset(queues, mapping=queues_before)
        [message] = jobs.dequeue(wait=10 * SECOND)
        message.complete()


def test_timers_of_many_numbers_without_a_queue_share_few_reads_of_the_metadata_shard(
    tickwheel_server: PrivateServer,
    namespace: str,
    jobs: Queue,
    tmp_path: Path,
    server: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    numbers = range(1_000, 1_300)

    def reads() -> int:
        return int(server.info("commandstats").get("cmdstat_hgetall", {}).get("calls", 0))

    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as driving:
        eventually(driving.epoch, "driving")
        before = reads()
        due_ms = int(time.time() * 1_000)
        for number in numbers:
            timer = pack(Timer(due_ms, number, 1, Kind.PROMOTE, b"m"))
            server.xadd(shard_key(namespace, 0, "inbox"), {b"t": timer})
        jobs.enqueue(delay=timedelta(milliseconds=50))
        [message] = jobs.dequeue(wait=10 * SECOND)
        message.complete()
        eventually(
            lambda: driving.process.health()[0].unknown_queue_timers >= len(numbers), "all numbers are unknown", 10
        )
        assert reads() - before < len(numbers) / 5
        assert sum("which the metadata shard does not have" in line for line in caplog.messages) <= 1
    server.delete(*server.keys(f"{namespace}:*"))


def test_entries_of_the_inbox_that_are_not_timers_are_skipped_counted_logged_and_removed(
    tickwheel_server: PrivateServer,
    namespace: str,
    jobs: Queue,
    tmp_path: Path,
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # A previous test may have logged the warning.
    monkeypatch.setattr(corrupt_entries, "_log_throttle", LogThrottle())
    caplog.set_level(logging.DEBUG, "tickwheel.event_process")
    inbox = shard_key(namespace, 0, "inbox")
    skipped = []
    for corrupt in (b"\xff" * 5, b"\xff" * 14, b"\x7f" * 40, bytes(14)):
        entry_id = server.xadd(inbox, {b"t": corrupt}).decode()
        skipped.append((f"shard 0: skipped entry {entry_id} of the inbox,", f" begins with {corrupt[:32].hex()}."))
        jobs.enqueue(delay=timedelta(milliseconds=1))
    jobs.enqueue(delay=timedelta(seconds=3))
    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as driving:
        for _ in range(len(skipped) + 1):
            [message] = jobs.dequeue(wait=10 * SECOND)
            message.complete()
        eventually(lambda: not server.xlen(inbox), "the inbox is empty")
        assert driving.process.health()[0].corrupt_entries == len(skipped)
    lines = [record for record in caplog.records if "no program of Tickwheel writes such timers" in record.message]
    assert [line.levelno for line in lines] == [logging.WARNING, *[logging.DEBUG] * (len(skipped) - 1)]
    for line, (which, content) in zip(lines, skipped, strict=True):
        assert line.message.startswith(which)
        assert content in line.message


def test_drivers_of_a_namespace_that_is_recreated_with_other_shards_end(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as driving:
        eventually(driving.epoch, "driving")
        recreate_namespace(tickwheel_server, namespace, shards=4)
        with Tickwheel(tickwheel_server.url, namespace=namespace, shards=4) as tickwheel:
            tickwheel.queue("q").enqueue_many(NewMessage(delay=timedelta(milliseconds=50)) for _ in range(40))
            driving.thread.join(20)
            assert "recreated with 4 shards" in str(driving.error)
            with run_driver(tickwheel_server, namespace, tmp_path / "lock"):
                eventually(
                    lambda: tickwheel.queue("q").counts()["pending"] == 40,
                    "the next event process drives all four shards",
                )


@pytest.fixture(params=["fence", "watch"])
def notices_soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle event process notices a change of its namespace by the fence of its shard, or by `NamespaceWatch`."""
    if request.param == "fence":
        monkeypatch.setattr(server_clock, "PROBE_IDLE_MS", 100)
        monkeypatch.setattr(namespace_watch, "INTERVAL_S", 3_600)
    else:
        monkeypatch.setattr(namespace_watch, "INTERVAL_S", 0.1)


@pytest.mark.usefixtures("notices_soon")
def test_an_idle_event_process_notices_that_the_namespace_is_recreated_with_more_shards(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as driving:
        eventually(driving.epoch, "driving")
        recreate_namespace(tickwheel_server, namespace, shards=4)
        driving.thread.join(20)
        assert "recreated with 4 shards" in str(driving.error)


@pytest.mark.usefixtures("notices_soon")
def test_an_idle_event_process_whose_namespace_is_gone_ends_and_claims_no_shard(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path, server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as driving:
        eventually(driving.epoch, "driving")
        tickwheel_server.clear(namespace)
        driving.thread.join(20)
        assert isinstance(driving.error, NamespaceLost)
        assert server.keys(f"{namespace}:*") == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_shard_without_a_claim_is_claimed_although_the_metadata_shard_does_not_answer(
    tickwheel_server: PrivateServer, namespace: str, jobs: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: QueueDirectory) -> bool:
        raise Unavailable("no answer")

    monkeypatch.setattr(QueueDirectory, "check_shards", fail)
    monkeypatch.setattr(QueueDirectory, "queues_with_sinks", lambda self, since_ms: {})
    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as driving:
        eventually(driving.epoch, "driving")


SWAPPED: dict[str, dict[str, Any]] = {"first": {}, "second": {"exclusive_key": "of"}}
STAMP_IGNORED = Mutant(
    "a stamp is ignored",
    "_driver_context",
    "if call('HGET', config, 'version') ~= sub(ARGV[3], 1, 8) then",
    "if sub(call('HGET', config, 'version') or '', 1, 4) ~= sub(ARGV[3], 1, 4) then",
)


def survives_recreated_queues(server: PrivateServer, namespace: str, lock: Path) -> bool:
    """Return whether messages of two queues become Pending after the queues are lost and recreated in reverse order."""
    with run_driver(server, namespace, lock):
        for names in (list(SWAPPED), list(reversed(SWAPPED))):
            recreate_namespace(server, namespace)
            with Tickwheel(server.url, namespace=namespace) as tickwheel:
                queues = [tickwheel.create_queue(name, **SWAPPED[name]) for name in names]
                for queue in queues:
                    queue.enqueue(id=queue.name, delay=timedelta(milliseconds=50), metadata={"of": "1"})
                delivered = [message.id for queue in queues for message in queue.dequeue(wait=3 * SECOND)]
                if delivered != names or tickwheel._run(audit(tickwheel._context)):
                    return False
    return True


def test_recreated_queues_with_other_numbers_are_distinguished_from_the_earlier_queues(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    assert survives_recreated_queues(tickwheel_server, namespace, tmp_path / "lock")
    with load_mutant(STAMP_IGNORED, tmp_path):
        assert not survives_recreated_queues(tickwheel_server, namespace, tmp_path / "lock")


def test_a_second_event_process_waits_for_the_lock_and_follows_at_once(
    tickwheel_server: PrivateServer, namespace: str, jobs: Queue, tmp_path: Path
) -> None:
    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as first:
        eventually(first.epoch, "the first drives")
        with run_driver(tickwheel_server, namespace, tmp_path / "lock") as second:
            jobs.enqueue(delay=timedelta(milliseconds=50))
            assert len(jobs.dequeue(wait=10 * SECOND)) == 1
            assert second.epoch() == 0

            first.process.stop()
            eventually(second.epoch, "the second drives")
            assert second.epoch() == 2


def test_a_deposed_event_process_ends_with_fenced(
    tickwheel_server: PrivateServer, namespace: str, jobs: Queue, tmp_path: Path
) -> None:
    with run_driver(tickwheel_server, namespace, tmp_path / "lock of this host") as first:
        eventually(first.epoch, "the first drives")
        with run_driver(tickwheel_server, namespace, tmp_path / "lock of another host") as second:
            eventually(second.epoch, "the second drives")
            jobs.enqueue(delay=timedelta(milliseconds=50))
            first.thread.join(10)

            assert isinstance(first.error, Fenced)
            assert len(jobs.dequeue(wait=10 * SECOND)) == 1
            assert second.error is None


def test_a_shard_keeps_its_kind_of_election(
    tickwheel_server: PrivateServer, namespace: str, jobs: Queue, tmp_path: Path, server: Any
) -> None:
    server.hset(shard_key(namespace, 0, "clock"), "election", "another")

    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as driving:
        driving.thread.join(10)

    assert "another" in str(driving.error)


def test_stopping_is_immediate_in_every_wait(
    tickwheel_server: PrivateServer, namespace: str, jobs: Queue, tmp_path: Path
) -> None:
    with run_driver(tickwheel_server, namespace, tmp_path / "lock") as leading:
        eventually(leading.epoch, "driving")
        with run_driver(tickwheel_server, namespace, tmp_path / "lock") as waiting:
            for one in (waiting, leading):
                began = time.monotonic()
                one.process.stop()
                one.thread.join(10)
                assert time.monotonic() - began < 2


def test_a_lock_file_is_free_after_a_release_and_after_an_abandoned_acquisition(tmp_path: Path) -> None:
    election, stopped = LockFileElection(tmp_path / "lock"), threading.Event()
    leadership = election.acquire(3, stopped)
    assert leadership is not None
    assert (leadership.claims.epoch, leadership.lost) == (None, False)
    assert election.acquire(4, stopped) is not None

    stopped.set()
    assert election.acquire(3, stopped) is None
    stopped.clear()
    leadership.release()
    leadership.release()
    assert election.acquire(3, stopped) is not None
