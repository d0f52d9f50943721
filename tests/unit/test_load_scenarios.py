"""Each field of a scenario is validated, and the seed determines the plan."""

from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest

from tests.unit.load_scenarios import one_queue
from tickwheel import InvalidArgument
from tickwheel.load.capacity import due_tasks
from tickwheel.load.run.batches import Batches
from tickwheel.load.scenario import recording, scenario_file
from tickwheel.load.scenario.arrival_rate import ArrivalRate, Burst
from tickwheel.load.scenario.arrivals import expected_count, plan_arrivals
from tickwheel.load.scenario.distributions import (
    Distribution,
    constant,
    empirical,
    exponential,
    lognormal,
    mix,
    parse,
    uniform,
)
from tickwheel.load.scenario.metadata_values import numbered_values
from tickwheel.load.scenario.scenario import Cancel, WorkerGroup
from tickwheel.load.scenario.source import Source, shipped_scenarios

pytestmark = pytest.mark.unit

NAMED = '[[queue]]\nname = "q"\n'
QUEUE = '[[queue]]\nname = "q"\narrivals = 1\nrun = "1s"\n'


def scenario_of(folder: Path, text: str) -> Path:
    path = folder / "day.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["media-encoding", "order-timeouts", "timestone"])
def test_shipped_scenarios_can_be_read_and_planned(name: str) -> None:
    assert name in shipped_scenarios()
    scenario = Source(name, scale=0.01).scenario()
    first = list(islice(plan_arrivals(scenario), 100))
    assert len(first) == 100
    assert all(earlier.at_s <= later.at_s for earlier, later in pairwise(first))


def test_a_million_orders_are_planned_and_95_percent_are_paid() -> None:
    scenario = Source("order-timeouts").scenario()
    assert expected_count(scenario) == 1_000_000
    orders = list(islice(plan_arrivals(scenario), 20_000))
    assert sum(order.cancel_s is not None for order in orders) / len(orders) == pytest.approx(0.95, abs=0.01)


def test_the_same_seed_plans_the_same_day_and_another_seed_another_day() -> None:
    scenario = Source("media-encoding", scale=0.1).scenario()

    def first(seed: int) -> list[object]:
        return list(islice(plan_arrivals(replace(scenario, seed=seed)), 200))

    assert first(7) == first(7)
    assert first(7) != first(8)


def test_a_scale_reduces_messages_workers_and_values_alike() -> None:
    whole, part = Source("media-encoding").scenario(), Source("media-encoding", scale=0.1).scenario()
    assert expected_count(part) == pytest.approx(expected_count(whole) / 10, rel=0.01)
    assert part.worker_count == whole.worker_count / 10
    assert whole.queues[0].exclusive is not None
    assert part.queues[0].exclusive is not None
    assert len(part.queues[0].exclusive.names) == len(whole.queues[0].exclusive.names) / 10


def test_arrivals_follow_the_curve_of_the_day() -> None:
    curve = ArrivalRate((0.0, 43_200.0), (0.0, 2.0))
    assert curve.rate_at(21_600) == pytest.approx(1.0)
    assert curve.rate_at(86_400 + 43_200) == 2.0
    assert curve.rate_at(64_800) == pytest.approx(1.0)
    times = list(curve.draw(0, 43_200, Random(1)))
    assert len(times) == pytest.approx(43_200, rel=0.03)
    assert sum(time < 21_600 for time in times) / len(times) == pytest.approx(0.25, abs=0.01)
    assert curve.count(0, 43_200) == pytest.approx(43_200, rel=0.001)


def test_bursts_are_added_to_the_curve() -> None:
    curve = ArrivalRate((0.0,), (10.0,), Burst(60.0, 5.0, 100.0))
    assert curve.rate_at(2.0) == curve.rate_at(63.0) == 100.0
    assert curve.rate_at(30.0) == 10.0
    assert curve.count(0, 3_600) == pytest.approx(60 * (5 * 100 + 55 * 10), rel=0.01)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("15m", constant(900.0)),
        ({"uniform": ["1m", "10m"]}, uniform(60.0, 600.0)),
        ({"exponential": "30s"}, exponential(30.0)),
        ({"lognormal": {"median": "2m", "sigma": 0.8}}, lognormal(120.0, 0.8)),
        ({"list": ["1s", "3s"]}, empirical((1.0, 3.0))),
        ({"mix": [[9, "1s"], [1, {"exponential": "1m"}]]}, mix((9.0, 1.0), (constant(1.0), exponential(60.0)))),
    ],
    ids=["constant", "uniform", "exponential", "lognormal", "list", "mix"],
)
def test_a_distribution_draws_about_its_mean(written: object, expected: Distribution) -> None:
    distribution, random = parse("run", written), Random(1)
    assert distribution.mean == expected.mean
    assert [distribution.draw(Random(n)) for n in range(1_000)] == [expected.draw(Random(n)) for n in range(1_000)]
    assert sum(distribution.draw(random) for _ in range(20_000)) / 20_000 == pytest.approx(distribution.mean, rel=0.05)


def test_skewed_values_give_a_few_values_most_of_the_messages() -> None:
    random, values = Random(1), numbered_values("project", 100, 1.0)
    drawn = [values.draw(random) for _ in range(5_000)]
    assert drawn.count("project-1") / 5_000 == pytest.approx(1 / 5.187, rel=0.1)
    assert numbered_values("project", 4, 0.0).sums == [1, 2, 3, 4]


def test_the_planned_due_messages_are_those_enqueued_before_the_delay_minus_those_cancelled() -> None:
    scenario = one_queue(arrivals=ArrivalRate((0.0, 3_600.0, 3_601.0), (0.0, 0.0, 5.0)), delay=constant(900.0))
    scenario = replace(scenario, queues=[replace(scenario.queues[0], cancel=Cancel(0.8, constant(60.0)))])
    assert due_tasks.tasks_of_period(scenario, 1_000, 4_400, 1) == []
    tasks = due_tasks.tasks_of_period(scenario, 4_600, 5_600, 1)
    assert len(tasks) == pytest.approx(due_tasks.rate(scenario, scenario.queues[0], 4_600, 5_600) * 1_000, rel=0.25)


def test_batches_are_sent_when_they_are_full_or_have_waited_long_enough() -> None:
    batches: Batches[str, int] = Batches(2, 1.0)
    for n in range(3):
        batches.add("q", 0.1 * n, n)
    assert list(batches.ready(0.3)) == [("q", [(0.0, 0), (0.1, 1)])]
    assert batches.next_s == pytest.approx(1.2)
    assert list(batches.ready(1.1)) == []
    assert list(batches.ready(1.25)) == [("q", [(0.2, 2)])]
    assert not batches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "day.toml: queue is missing: a scenario needs at least one [[queue]]"),
        ("a = " + "[" * 20_000, "day.toml is not TOML: the TOML is nested too deeply"),
        ("[[queue]", "day.toml is not TOML: Expected ']]' at the end of an array declaration (at line 1, column 8)"),
        (f"speed = 3\n{QUEUE}", "day.toml: speed is unknown (did you mean 'seed'?); known fields are about,"),
        (f"seed = -1\n{QUEUE}", "day.toml: seed must be a whole number from 0 to"),
        (f"length = 3\n{QUEUE}", "day.toml: length: a duration is written like 15m"),
        (f"length = '8d'\n{QUEUE}", "day.toml: length must be a number of seconds from 0.001 to 604,800, not 691200"),
        (f"{QUEUE}wieght = 3\n", "day.toml: queue[1].wieght is unknown (did you mean 'weight'?); known fields are"),
        (f"{QUEUE}weight = 101\n", "day.toml: queue[1].weight must be a whole number from 1 to 100, not 101"),
        (f"{QUEUE}failures = 2\n", "day.toml: queue[1].failures must be a number from 0 to 1, not 2"),
        (f"{QUEUE}{QUEUE}", "day.toml: queue names a queue twice: q, q"),
        ('[[queue]]\nname = "q"\nrun = "1s"\n', "day.toml: queue[1].arrivals is missing"),
        (f"{NAMED}arrivals = [[3, 1], [2, 1]]\nrun = '1s'", "points [hour, messages per second] in ascending"),
        (f"{NAMED}arrivals = [[25, 1]]\nrun = '1s'", "queue[1].arrivals[1][1] must be a number from 0 to 24"),
        ('[[queue]]\nname = "q q"\narrivals = 1\nrun = "1s"', "queue[1].name must have 1 to 64 letters"),
        ('[[queue]]\nname = "q"\narrivals = 1\nrun = "soon"', "day.toml: queue[1].run: a duration is written like"),
        (f"{NAMED}arrivals = 1\nrun = {{ normal = '1s' }}", "queue[1].run must be a duration like '15m', or a table"),
        (f"{QUEUE}[[workers]]\nqueues = ['r']\n", "day.toml: workers[1].queues must be among q, not 'r'"),
        (f"{QUEUE}[[workers]]\nselector = 'fair'\n", "workers[1].selector must be one of reduced-lottery, lottery,"),
        (f"{QUEUE}[[workers]]\nwhere = {{ gpu = 'a100' }}\n", "filters by 'gpu', which no message of queue 'q' has"),
        (f"{QUEUE}[[queue.urgency]]\nshare = 0.5\noffset = '1h'\n", "the shares of day.toml: queue[1].urgency must"),
        (f"recording = 'none.csv'\n{QUEUE}", "cannot read"),
        pytest.param(f"seed = {'9' * 5_000}", "day.toml is not TOML: Exceeds the limit", id="integer"),
        pytest.param(f"seed = {'[' * 5_000}", "day.toml is not TOML: the TOML is nested too deeply", id="nested"),
        pytest.param(f"seed = 0x{'f' * 5_000}\n{QUEUE}", "seed must be a whole number from 0 to", id="hexadecimal"),
        pytest.param(f"{NAMED}arrivals = 1\nrun.{'a.' * 5_000}a = 1", "run must be a duration like", id="table"),
    ],
)  # fmt: skip
def test_an_error_in_a_file_is_named_with_its_position(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        scenario_file.read(scenario_of(tmp_path, text))
    assert message in str(raised.value)


def test_the_error_for_an_unknown_scenario_lists_the_known_names() -> None:
    with pytest.raises(
        InvalidArgument, match=r"unknown scenario .*: use media-encoding, order-timeouts, timestone, a .toml file"
    ):
        Source("orders").scenario()


RECORDED = "queue,arrival,run seconds\nmail,3600,1.5\nencode,3660.5,30\nmail,3605,0.5\n"


def test_a_recording_is_replayed_as_recorded(tmp_path: Path) -> None:
    path = tmp_path / "monday.csv"
    path.write_text(RECORDED)
    scenario = Source(str(path)).scenario()
    assert [(arrival.at_s, arrival.queue, arrival.run_s) for arrival in plan_arrivals(scenario)] == [
        (0.0, "mail", 1.5),
        (5.0, "mail", 0.5),
        (60.5, "encode", 30.0),
    ]
    assert scenario.start_s == 3_600
    assert expected_count(scenario) == 3


def test_times_of_a_recording_are_wall_clock_times(tmp_path: Path) -> None:
    path = tmp_path / "monday.csv"
    path.write_text("queue,arrival,run seconds\nmail,2026-05-17T18:00:00+02:00,1\nmail,2026-05-17T18:00:30+02:00,1\n")
    assert [row.arrival_s for row in recording.read(path)] == [64_800, 64_830]


def test_a_scenario_gives_a_recording_its_workers_and_settings(tmp_path: Path) -> None:
    (tmp_path / "monday.csv").write_text(RECORDED)
    text = 'recording = "monday.csv"\n[[queue]]\nname = "encode"\nbatch = 1\n[[workers]]\nhosts = 2\nprocesses = 4\n'
    scenario = scenario_file.read(scenario_of(tmp_path, text))
    assert {queue.name: queue.batch for queue in scenario.queues} == {"encode": 1, "mail": 10}
    assert scenario.workers == [WorkerGroup("workers 1", ["encode", "mail"], 2, 4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "monday.csv line 1: the header must be queue,arrival,run seconds, not ''"),
        ("queue,arrival\n", "monday.csv line 1: the header must be queue,arrival,run seconds, not 'queue,arrival'"),
        ("queue,arrival,run seconds\n", "monday.csv has no messages"),
        ("queue,arrival,run seconds\nmail,1\n", "monday.csv line 2: expected 3 fields, not 2"),
        ("queue,arrival,run seconds\nmail,1,2\nmail,soon,2\n", "monday.csv line 3: arrival must be 0 or more seconds"),
        ("queue,arrival,run seconds\nmail,-1,2\n", "monday.csv line 2: arrival must be 0 or more seconds"),
        ("queue,arrival,run seconds\nmail,1,nan\n", "run seconds must be a number from 0 to 86,400, not 'nan'"),
        ("queue,arrival,run seconds\nm m,1,2\n", "monday.csv line 2: queue must have 1 to 64 letters"),
        ("queue,arrival,run seconds\nm,1,2\nm,2026-05-17,2\n", "3: arrival must be written as on the lines before"),
    ],
)  # fmt: skip
def test_an_error_in_a_recording_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "monday.csv"
    path.write_text(text)
    with pytest.raises(InvalidArgument) as raised:
        recording.read(path)
    assert message in str(raised.value)
