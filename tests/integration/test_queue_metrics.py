"""The metrics of queues on real servers: equal to the counts, stored, and within their budget of commands."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.event_process_thread import run_event_process
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Queue, Tickwheel
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.event_process import EventProcess, queue_metrics_reader, shard_readings
from tickwheel.event_process.queue_metrics_reader import QueueMetricsReader
from tickwheel.event_process.queue_readings import QueueReading, read_queues
from tickwheel.event_process.shard_readings import BATCH
from tickwheel.storage.keys import queue_key
from tickwheel.storage.record import State
from tickwheel.testing import PrivateServer, VirtualClock

pytestmark = pytest.mark.integration

SECOND = timedelta(seconds=1)
STATES = [state.label for state in State]


def read(tickwheel: Tickwheel, queue: str) -> list[QueueReading]:
    """Read the metrics of a queue on each shard."""
    context = tickwheel._context
    return [
        tickwheel._run(read_queues(context, shard, {queue: None})).readings[queue] for shard in range(context.shards)
    ]


def counts(readings: list[QueueReading]) -> dict[str, int]:
    return dict(zip(STATES, map(sum, zip(*(reading.counts for reading in readings), strict=True)), strict=True))


def errored(tickwheel: Tickwheel, queue: str) -> int:
    return sum(reading.errored for reading in read(tickwheel, queue))


def head_age_s(tickwheel: Tickwheel, queue: str) -> float:
    return max(reading.head_age_ms for reading in read(tickwheel, queue)) / 1_000


def settle_some(queue: Queue) -> None:
    """Bring messages of the queue to every state."""
    queue.enqueue_many(NewMessage(id=f"later{n}", delay=timedelta(hours=1)) for n in range(7))
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(20))
    leased = queue.dequeue(limit=20)
    leased[0].complete()
    for message in leased[1:4]:
        message.fail("boom", final=True)
    queue.cancel("later0")
    queue.enqueue_many(NewMessage(id=f"n{n}") for n in range(5))


def test_the_readings_equal_the_counts_and_the_lateness(
    tw: Tickwheel, direct_client: Tickwheel, clock: VirtualClock
) -> None:
    queue = tw.create_queue("q")
    queue.enqueue_many(NewMessage(id=f"due{n}", delay=n * SECOND) for n in range(12))
    clock.set(clock.now + timedelta(seconds=12.5))
    clock.run_due()
    settle_some(queue)
    readings = read(direct_client, "q")
    assert counts(readings) == queue.counts()
    assert set(queue.counts().values()) != {0}
    late = Counter[int]()
    for reading in readings:
        late.update({2**bucket: count for bucket, count in enumerate(reading.late)})
    assert +late == Counter(queue.lateness().promoted)
    assert late.total() == 11


@pytest.mark.queue(max_attempts=1)
def test_each_way_to_become_errored_is_counted_and_nothing_reduces_the_number(
    tw: Tickwheel, direct_client: Tickwheel, clock: VirtualClock, queue: Queue
) -> None:
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(6))
    assert errored(direct_client, "q") == 0
    leased = queue.dequeue(limit=6)
    leased[0].fail("the attempts are used up")
    leased[1].fail("final", final=True)
    assert errored(direct_client, "q") == 2
    # The leases of the other four end.
    clock.advance(timedelta(hours=1))
    assert errored(direct_client, "q") == 6
    queue.redrive(leased[0].id)
    assert errored(direct_client, "q") == 6
    clock.advance(timedelta(days=365))
    queue.purge()
    assert queue.counts()["errored"] == 0
    assert errored(direct_client, "q") == 6


def test_a_failure_with_attempts_left_is_not_counted(tw: Tickwheel, direct_client: Tickwheel, queue: Queue) -> None:
    queue.enqueue(id="m")
    [message] = queue.dequeue()
    message.fail("again")
    assert errored(direct_client, "q") == 0


def test_the_number_of_errored_messages_ends_with_the_queue(tw: Tickwheel, direct_client: Tickwheel) -> None:
    queue = tw.create_queue("q")
    queue.enqueue(id="m")
    queue.dequeue()[0].fail("boom", final=True)
    tw.delete_queue("q", purge=True)
    tw.create_queue("q").enqueue(id="m")
    assert errored(direct_client, "q") == 0


def test_the_age_of_the_head_begins_at_the_due_time(
    tw: Tickwheel, direct_client: Tickwheel, clock: VirtualClock, queue: Queue
) -> None:
    assert head_age_s(direct_client, "q") == 0
    queue.enqueue(id="a", delay=10 * SECOND)
    # The wheel is three seconds late.
    clock.set(clock.now + 13 * SECOND)
    clock.run_due()
    assert head_age_s(direct_client, "q") == 3
    clock.advance(4 * SECOND)
    assert head_age_s(direct_client, "q") == 7
    # A more urgent message is the head now.
    queue.enqueue(id="urgent", deadline=-timedelta(days=1))
    if direct_client._context.shards == 1:
        assert head_age_s(direct_client, "q") == 0
    queue.dequeue(limit=2)
    assert head_age_s(direct_client, "q") == 0


def test_the_age_of_the_head_begins_again_when_the_message_comes_back(
    tw: Tickwheel, direct_client: Tickwheel, clock: VirtualClock, queue: Queue
) -> None:
    queue.enqueue(id="m")
    clock.advance(10 * SECOND)
    [message] = queue.dequeue()
    clock.advance(SECOND)
    message.release()
    clock.advance(2 * SECOND)
    assert head_age_s(direct_client, "q") == 2
    queue.dequeue()
    # The lease of 30 s ends.
    clock.advance(35 * SECOND)
    assert head_age_s(direct_client, "q") == 5


@pytest.mark.queue(exclusive_key="of")
def test_messages_behind_a_leased_value_are_not_ready(
    tw: Tickwheel, direct_client: Tickwheel, clock: VirtualClock, queue: Queue
) -> None:
    queue.enqueue_many(NewMessage(id=f"m{n}", metadata={"of": "x"}) for n in range(2))
    [message] = queue.dequeue(limit=2)
    clock.advance(10 * SECOND)
    assert queue.counts()["pending"] == 1
    assert head_age_s(direct_client, "q") == 0
    message.complete()
    # The wait for the value is a part of the age.
    assert head_age_s(direct_client, "q") == 10


def test_damaged_keys_and_values_of_a_queue_hide_no_other_queue(
    tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        for name in ("damaged", "healthy"):
            tickwheel.create_queue(name).enqueue(id="m")
        for key in ("lateness", "ready"):
            server.set(queue_key(namespace, 0, "damaged", key), "another type")
        server.hset(queue_key(namespace, 0, "damaged", "counts"), "3", "9" * 1_000_000)
        server.hset(queue_key(namespace, 0, "damaged", "config"), "errored", "-1")
        reply = tickwheel._run(read_queues(tickwheel._context, 0, {"damaged": None, "healthy": None}))
        assert reply.readings["healthy"].counts == (0, 1, 0, 0, 0, 0)
        damaged = reply.readings["damaged"]
        assert (damaged.counts, damaged.errored, damaged.head_age_ms) == ((0, 1, 0, 0, 0, 0), 0, 0)
        # The process keeps this text, and sends it with its next call.
        assert len(damaged.counts_text) < 100
        server.delete(queue_key(namespace, 0, "damaged", "counts"))
        server.set(queue_key(namespace, 0, "damaged", "counts"), "another type")
        [reading] = read(tickwheel, "damaged")
        assert not reading.is_used


@pytest.fixture
def fast_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the queues without a pause between two turns."""
    monkeypatch.setattr(shard_readings, "TURN_S", 0.1)


@contextmanager
def run_with_metrics(server: PrivateServer, namespace: str, lock: Path | LeaseOptions) -> Iterator[EventProcess]:
    with run_event_process(server.url, namespace, lock) as process, reader(process).running():
        yield process


def reader(process: EventProcess) -> QueueMetricsReader:
    assert process.queue_metrics is not None
    return process.queue_metrics


def exported(*processes: EventProcess) -> dict[str, list[int]]:
    """Return the counts and the number of errored messages by queue: the sums over all processes."""
    sums: dict[str, list[int]] = {}
    for process in processes:
        for _, queue, reading in reader(process).readings():
            total = sums.setdefault(queue, [0] * 7)
            for n, count in enumerate((*reading.counts, reading.errored)):
                total[n] += count
    return sums


@pytest.mark.usefixtures("fast_turns")
def test_the_number_of_errored_messages_survives_a_change_of_the_leader(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        settle_some(tickwheel.create_queue("q"))
        for _ in range(2):
            with run_with_metrics(tickwheel_server, namespace, tmp_path / "lock") as process:
                eventually(lambda: exported(process).get("q", [0])[-1] == 3, "the errored messages are exported")
            assert exported(process) == {}


@pytest.mark.usefixtures("fast_turns")
def test_the_sums_over_two_event_processes_equal_the_counts_of_the_namespace(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    with ExitStack() as stack:
        tickwheel = stack.enter_context(Tickwheel(tickwheel_server.url, namespace=namespace, shards=8))
        for name in ("a", "b", "c"):
            settle_some(tickwheel.create_queue(name))
        expected = {name: [*tickwheel.queue(name).counts().values(), 3] for name in ("a", "b", "c")}
        processes = [
            stack.enter_context(run_with_metrics(tickwheel_server, namespace, LeaseOptions(1.0))) for _ in range(2)
        ]

        def shards_led() -> list[set[int]]:
            return [set(process.led_epochs()) for process in processes]

        eventually(lambda: list(map(len, shards_led())) == [4, 4], "both processes lead four shards")
        eventually(lambda: exported(*processes) == expected, "the sums are right")
        shards = [{shard for shard, _, _ in reader(process).readings()} for process in processes]
        assert shards == shards_led()
        processes[1].stop()
        eventually(lambda: len(processes[0].led_epochs()) == 8, "the other process has taken over")
        eventually(lambda: exported(processes[1]) == {}, "the stopped process exports nothing")
        eventually(lambda: exported(*processes) == expected, "the sums are right again")


def test_1100_queues_are_read_with_at_most_200_commands_a_second(
    tickwheel_server: PrivateServer, namespace: str, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel,
        run_event_process(tickwheel_server.url, namespace, tmp_path / "lock") as process,
    ):
        for n in range(1_100):
            tickwheel.create_queue(f"q{n}").enqueue(id="m")
        eventually(process.led_epochs, "the process drives")

        def commands() -> int:
            return sum(row["calls"] for row in server.info("commandstats").values())

        def commands_in(seconds: float) -> float:
            """Return the commands a second that the server executed, except for this function's own."""
            before, began = commands(), time.monotonic()
            eventually(lambda: time.monotonic() >= began + seconds, "the time is over", pause=0.1)
            return (commands() - before - 1) / (time.monotonic() - began)

        without_metrics = commands_in(3)
        with reader(process).running():
            eventually(lambda: reader(process).readings(), "the first queues are read")
            with_metrics = commands_in(6)
            # The rest of the turn would take half a minute.
            monkeypatch.setattr(queue_metrics_reader, "COMMANDS_PER_S", 5_000)
            eventually(lambda: len(exported(process)) == 1_001, "all queues were read", 60)
        assert 100 < with_metrics - without_metrics <= 200
        sums = exported(process)
        assert sum(total[1] for total in sums.values()) == 1_100
        assert sums["_other"][1] == 100


def test_a_call_has_as_many_commands_as_it_reports(tickwheel_server: PrivateServer, namespace: str) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel, tickwheel_server.client() as server:
        names = [f"q{n}" for n in range(BATCH)]
        for name in names:
            tickwheel.create_queue(name).enqueue(id="m")
        tickwheel._run(read_queues(tickwheel._context, 0, dict.fromkeys(names)))

        def commands() -> Counter[str]:
            return Counter({name: row["calls"] for name, row in server.info("commandstats").items()})

        before = commands()
        reply = tickwheel._run(read_queues(tickwheel._context, 0, dict.fromkeys(names)))
        used = commands() - before
        del used["cmdstat_info"]
        assert used.total() == reply.commands == 3 + 5 * BATCH
