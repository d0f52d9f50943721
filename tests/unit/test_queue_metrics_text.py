"""The metrics of queues: their samples, the queues that are summed, and the pace at which they are read."""

import re
from collections.abc import Callable

import pytest
from prometheus_client import generate_latest

from tests.support.fake_queues import FakeQueue, FakeQueues
from tickwheel import TickwheelError
from tickwheel.event_process import queue_metrics_reader
from tickwheel.event_process.metrics import ShardMetrics
from tickwheel.event_process.queue_metrics_reader import QueueMetricsReader
from tickwheel.event_process.queue_readings import LATE_BUCKETS, QueueReading
from tickwheel.event_process.shard_readings import FULL_TURNS, TURN_S
from tickwheel.operations.context import NamespaceContext
from tickwheel.telemetry.metrics_server import registry_of

pytestmark = pytest.mark.unit


class Reading:
    """A reader of fake queues, with a clock that the test sets. The process leads the shards of ``led``."""

    def __init__(self, queues: FakeQueues) -> None:
        self.queues = queues
        self.now = 1_000.0
        self.led = dict(queues.epochs)
        self.reader = QueueMetricsReader(NamespaceContext("tw"), queues.run, lambda: self.led, lambda: self.now)

    def run(self, seconds: float) -> list[tuple[float, int]]:
        """Make the steps of this time. Return the moments of the calls, with their numbers of commands."""
        calls, end = [], self.now + seconds
        while self.now < end:
            before = len(self.queues.commands)
            pause = self.reader.step()
            calls += [(self.now, commands) for commands in self.queues.commands[before:]]
            self.now += pause
        return calls

    def by_queue(self, value: Callable[[QueueReading], object]) -> dict[str, object]:
        return {name: value(reading) for _, name, reading in self.reader.readings()}


def samples(readings: list[tuple[int, str, QueueReading]]) -> dict[str, float]:
    """Return the exported samples of queues, by their names and labels without the namespace."""
    collector = ShardMetrics("tw", dict, queue_readings=lambda: readings)
    lines = generate_latest(registry_of(collector)).decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if "queue=" in line)
    return {name.replace('namespace="tw",', ""): float(value) for name, value in pairs}


def late(**counts: int) -> tuple[int, ...]:
    """Return a stored histogram: ``b3=2`` are two values in the bucket 3."""
    return tuple(counts.get(f"b{n}", 0) for n in range(LATE_BUCKETS))


def test_each_queue_has_a_sample_for_each_shard_and_state() -> None:
    reading = QueueReading((1, 2, 3, 4, 5, 6), 9, head_age_ms=1_500, counts_text=b"1,2,3,4,5,6")
    exported = samples([(3, "orders", reading), (4, "orders", reading)])
    assert exported['tickwheel_messages{queue="orders",shard="3",state="invisible"}'] == 1
    assert exported['tickwheel_messages{queue="orders",shard="4",state="errored"}'] == 6
    assert exported['tickwheel_errored_total{queue="orders",shard="3"}'] == 9
    assert exported['tickwheel_head_age_seconds{queue="orders",shard="3"}'] == 1.5
    # Without promoted messages, there is no histogram.
    assert len(exported) == 2 * (6 + 1 + 1)


def test_the_histogram_of_lateness_has_the_stored_buckets() -> None:
    exported = samples([(0, "orders", QueueReading(late=late(b0=5, b1=1, b3=2, b13=1, b40=1)))])
    of_queue = {
        match[1]: value
        for name, value in exported.items()
        if (match := re.match(r'tickwheel_queue_lateness_seconds_bucket\{le="([^"]+)"', name))
    }
    assert of_queue["0.001"] == 5
    assert of_queue["0.002"] == 6
    assert of_queue["0.004"] == 6
    assert of_queue["0.008"] == of_queue["4.096"] == 8
    assert of_queue["16.384"] == of_queue["1048.58"] == 9
    assert of_queue["+Inf"] == exported['tickwheel_queue_lateness_seconds_count{queue="orders",shard="0"}'] == 10
    # The middle of each bucket: 0.5, 1.5, 6 and 6,144 ms, and the bucket 40.
    expected = (5 * 0.5 + 1.5 + 2 * 6 + 6_144 + 0.75 * 2**40) / 1_000
    assert exported['tickwheel_queue_lateness_seconds_sum{queue="orders",shard="0"}'] == pytest.approx(expected)


def test_the_first_1000_queues_are_named_and_the_others_are_summed() -> None:
    queues = FakeQueues(["_other", *(f"q{n}" for n in range(1_005))])
    for n, queue in enumerate(queues.shards[0].values()):
        queue.counts, queue.errored, queue.late = [0, 0, n, 0, 0, 0], 1, {2: 1}
    reading = Reading(queues)
    reading.run(60)
    assert len(reading.reader.readings()) == 1_001
    running = reading.by_queue(lambda each: each.counts[2])
    assert running["q0"] == 1
    assert running["q999"] == 1_000
    # The queue with the name of the sum is a part of the sum.
    assert running["_other"] == 0 + sum(range(1_001, 1_006))
    assert reading.by_queue(lambda each: (each.errored, each.late[2]))["_other"] == (6, 6)


def test_counters_of_the_sum_do_not_fall_when_a_queue_is_deleted_or_gets_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_metrics_reader, "NAMED_QUEUES", 1)
    queues = FakeQueues(["a", "b", "c", "d"])
    for queue in queues.shards[0].values():
        queue.counts, queue.errored = [1] * 6, 10
    reading = Reading(queues)
    reading.run(10)
    assert reading.by_queue(lambda each: (each.counts[0], each.errored))["_other"] == (3, 30)
    # The queue b gets the name, and d is deleted.
    queues.names = ["b", "c"]
    queues.shards[0]["c"].errored = 15
    queues.shards[0]["c"].counts[2] = 7
    reading.run(30)
    assert reading.by_queue(lambda each: (each.counts[0], each.errored)) == {"b": (1, 10), "_other": (1, 35)}


@pytest.mark.parametrize("reason", ["claimed again", "an error"])
def test_counters_of_the_sum_do_not_fall_when_the_shard_is_read_anew(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(queue_metrics_reader, "NAMED_QUEUES", 0)
    queues = FakeQueues(["kept", "deleted"])
    for queue in queues.shards[0].values():
        queue.counts, queue.errored, queue.late = [1] * 6, 10, {3: 4}
    reading = Reading(queues)
    reading.run(10)
    queues.names = ["kept"]
    for _ in range(2):
        if reason == "an error":
            queues.error = TickwheelError("no answer")
            reading.run(2 * TURN_S)
            queues.error = None
        else:
            reading.led = {}
            reading.run(2)
            queues.epochs[0] += 1
            reading.led = dict(queues.epochs)
        reading.run(30)
        assert reading.by_queue(lambda each: (each.counts[0], each.errored, each.late[3])) == {"_other": (1, 20, 8)}
    queues.shards[0]["kept"].errored = 11
    queues.shards[0]["kept"].counts[2] = 5
    reading.run(60)
    assert reading.by_queue(lambda each: each.errored) == {"_other": 21}


def test_the_sum_is_exported_when_all_of_its_queues_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_metrics_reader, "NAMED_QUEUES", 0)
    reading = Reading(FakeQueues(f"q{n}" for n in range(20)))
    seen = []
    for _ in range(4):
        reading.reader.step()
        reading.now += 1
        seen.append(reading.by_queue(lambda _: True))
    # A read of the names, and three calls for 20 queues.
    assert seen == [{}, {}, {}, {"_other": True}]


def test_the_page_is_exported_while_all_queues_of_the_sum_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_metrics_reader, "NAMED_QUEUES", 0)
    queues = FakeQueues(["old"])
    queues.shards[0]["old"].counts, queues.shards[0]["old"].errored = [1] * 6, 4
    queues.shards[0]["new"] = FakeQueue([2] * 6)
    reading = Reading(queues)
    reading.run(5)
    queues.names = ["new"]
    seen = set()
    for _ in range(100):
        reading.reader.step()
        reading.now += 0.2
        seen.add(reading.by_queue(lambda each: (each.counts[0], each.errored))["_other"])
    # The counter keeps the errored messages of the queue that was deleted.
    assert seen == {(1, 4), (0, 4), (2, 4)}


@pytest.mark.parametrize("pending", [False, True])
def test_no_second_has_more_than_200_commands(pending: bool) -> None:
    queues = FakeQueues([f"q{n}" for n in range(1_500)], shards=3)
    if pending:
        for shard in queues.shards:
            for queue in shard.values():
                queue.counts = [0, 1, 0, 0, 0, 0]
    reading = Reading(queues)
    calls = reading.run(60)
    for n, (began, _) in enumerate(calls):
        assert sum(commands for moment, commands in calls[n : n + 200] if moment < began + 1) <= 200
    # The budget is used.
    assert sum(commands for _, commands in calls) > 60 * 150


def test_no_shard_waits_while_another_is_read_twice() -> None:
    queues = FakeQueues([f"q{n}" for n in range(1_000)], shards=4)
    Reading(queues).run(20)
    calls = [queues.calls_of.count(shard) for shard in range(4)]
    assert min(calls) >= max(calls) - 1 > 10


def test_an_idle_namespace_is_read_once_in_a_turn_and_takes_one_command_for_each_queue() -> None:
    queues = FakeQueues([f"q{n}" for n in range(8)])
    reading = Reading(queues)
    reading.run(TURN_S)
    first, *_ = calls = [commands for commands in queues.commands if commands > 1]
    assert (first, len(calls)) == (3 + 3 * 8, 1)
    queues.commands.clear()
    reading.run(TURN_S * FULL_TURNS)
    calls = [commands for commands in queues.commands if commands > 1]
    # In each of the turns, all values of one of the queues are read.
    assert calls == [3 + 8 + 2] * FULL_TURNS


def test_unchanged_counts_do_not_hide_an_errored_message_indefinitely() -> None:
    queues = FakeQueues(["q"])
    queues.shards[0]["q"].counts = [0] * 6
    reading = Reading(queues)
    reading.run(1)
    # The message was redriven and removed since.
    queues.shards[0]["q"].errored = 1
    reading.run(TURN_S * FULL_TURNS)
    assert reading.by_queue(lambda each: each.errored) == {"q": 1}


def test_the_age_of_the_head_grows_only_while_the_head_stays() -> None:
    queues = FakeQueues(["q"])
    queue = queues.shards[0]["q"]
    queue.counts, queue.since_ms = [0, 5, 0, 0, 0, 0], 9_000
    reading = Reading(queues)
    reading.run(1)
    assert reading.by_queue(lambda each: each.head_age_ms) == {"q": 1_000}
    queues.now_ms = 30_000
    reading.run(TURN_S)
    assert reading.by_queue(lambda each: each.head_age_ms) == {"q": 21_000}
    # Another message took its place, and the counts are as before.
    queue.since_ms = 29_990
    reading.run(TURN_S)
    assert reading.by_queue(lambda each: each.head_age_ms) == {"q": 10}


def used(queues: FakeQueues) -> FakeQueues:
    for shard in queues.shards:
        for queue in shard.values():
            queue.counts = [0] * 6
    return queues


def test_a_shard_that_is_not_led_any_more_has_no_samples_at_once() -> None:
    reading = Reading(used(FakeQueues(["q"], shards=2)))
    reading.run(5)
    assert {shard for shard, _, _ in reading.reader.readings()} == {0, 1}
    del reading.led[0]
    assert {shard for shard, _, _ in reading.reader.readings()} == {1}
    # The shard is won again, under another epoch: the readings of the former epoch are not exported.
    reading.led[0] = reading.queues.epochs[0] = 3
    assert {shard for shard, _, _ in reading.reader.readings()} == {1}
    reading.run(5)
    assert {shard for shard, _, _ in reading.reader.readings()} == {0, 1}


def test_a_shard_that_another_process_has_claimed_has_no_samples_after_the_next_call() -> None:
    reading = Reading(used(FakeQueues(["q"])))
    reading.run(5)
    assert reading.reader.readings()
    reading.queues.epochs[0] = 2
    reading.run(TURN_S)
    assert reading.reader.readings() == []


def test_a_shard_that_cannot_be_read_has_no_samples_and_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    reading = Reading(used(FakeQueues(["q"])))
    reading.run(5)
    reading.queues.error = TickwheelError("no answer")
    reading.run(2 * TURN_S)
    assert reading.reader.readings() == []
    assert "the queues of shard 0 cannot be read for the metrics; trying again in 5 s: no answer" in caplog.text
    reading.queues.error = None
    reading.run(2 * TURN_S)
    assert len(reading.reader.readings()) == 1


def test_a_queue_without_a_message_on_the_shard_has_no_samples() -> None:
    queues = FakeQueues(["new", "used"])
    queues.shards[0]["used"].counts[0] = 0
    reading = Reading(queues)
    reading.run(5)
    assert reading.by_queue(lambda each: each.counts) == {"used": (0,) * 6}


def test_a_process_that_leads_no_shard_makes_no_calls() -> None:
    reading = Reading(FakeQueues(["q"]))
    reading.led = {}
    assert reading.run(60) == []
