"""`python -m bench --stale` lists the rows that are older than their code, and the rows without a result."""

import pytest

from bench.harness.source_files import source_files
from bench.harness.staleness import CountCommits, describe_age, stale_rows
from bench.peers.__main__ import SOURCES
from bench.registry import row_sources

pytestmark = pytest.mark.unit

LIFE, WHEEL = "bench/measurements/message_life.py", "bench/measurements/timing_wheel.py"


def changed(*commits: tuple[str, str]) -> CountCommits:
    """Return a function that counts these commits: the time of each, and the path that it changed."""
    return lambda since, paths: sum(when > since and path in paths for when, path in commits)


@pytest.mark.parametrize(
    ("commit", "stale"),
    [
        (("monday 2", "scheduler"), ["life"]),
        (("monday 2", "wheel"), ["life", "timing_wheel"]),
        (("monday 2", LIFE), ["life"]),
        (("monday 2", WHEEL), ["timing_wheel"]),
        (("tuesday 2", "scheduler"), ["life", "empty"]),
        (("monday 0", "scheduler"), []),
    ],
)
def test_a_row_is_stale_if_its_code_or_its_measurement_changed_after_it(
    commit: tuple[str, str], stale: list[str]
) -> None:
    days = {"life": "monday 1", "timing_wheel": "monday 1", "empty": "tuesday 1"}
    sources = {"life": [LIFE], "timing_wheel": [WHEEL], "empty": ["bench/measurements/empty_dequeue.py"]}
    lines = stale_rows({name: {"measured": day} for name, day in days.items()}, sources, changed(commit))
    assert lines == [f"{name}: measured {days[name]}, 1 commits before the present code" for name in stale]


def test_a_row_without_a_result_and_a_result_without_a_row_are_listed() -> None:
    lines = stale_rows({"old": {"measured": "monday"}}, {"new": [LIFE]}, lambda since, paths: 0)
    assert lines == ["new: not measured", "old: no measurement has this row any more"]


def test_the_comparison_with_other_queues_is_stale_if_its_programs_changed() -> None:
    for path in ("scheduler", "bench/peers", "bench/harness/calibration.py"):
        assert describe_age("peers.json", "monday 1", SOURCES, changed(("monday 2", path))) == [
            "peers.json: measured monday 1, 1 commits before the present code"
        ]


def test_the_sources_of_a_row_include_what_it_imports_and_the_programs_that_it_starts() -> None:
    rows = row_sources()
    assert {LIFE, "bench/harness/manual_time.py", "bench/harness/busy_cores.py"} <= rows["life"]
    assert {"bench/harness/watched_service.py", "services/serving_program.py"} <= rows["large_requests_block"]
    assert "bench/no_op/celery_app.py" in rows["worker_against_celery"]
    assert "bench/measurements/relay.py" not in rows["life"]
    assert source_files("bench.no_such_module") == frozenset()
