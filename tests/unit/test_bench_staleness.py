"""`python -m bench --stale` lists the rows that were measured with other code, and the rows without a result."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import measure_rows
from bench.harness.checkout import Checkout, Origins
from bench.harness.measurement import Measurement
from bench.harness.source_files import source_files
from bench.harness.staleness import describe_age, stale_rows
from bench.peers.__main__ import SOURCES
from bench.registry import MEASUREMENTS, row_sources

pytestmark = pytest.mark.unit

LIFE, WHEEL = "bench/measurements/message_life.py", "bench/measurements/timing_wheel.py"
ROWS = {"life": [LIFE], "timing_wheel": [WHEEL]}


class Repository(Checkout):
    """A temporary git repository, with the files of the row `life` and of the row `timing_wheel`."""

    def git(self, *arguments: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(self.root), *identity, *arguments]
        subprocess.run(command, check=True, capture_output=True)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def change(self, path: str) -> None:
        self.write(path, f"{path} was changed")
        self.git("add", ".")
        self.git("commit", "-m", path)

    def stale(self, origin: dict[str, Any]) -> list[str]:
        """Return the stale rows, if both rows have this origin."""
        lines = stale_rows(dict.fromkeys(ROWS, origin), ROWS, self)
        return [line.partition(":")[0] for line in lines]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path)
    made.git("init", "--initial-branch", "trunk")
    for path in (
        "scheduler/code.py",
        "lua/code.lua",
        "wheel/code.py",
        LIFE,
        WHEEL,
        "requirements.lock",
        "docs/guide.md",
    ):
        made.write(path, "old")
    made.git("add", ".")
    made.git("commit", "-m", "all")
    return made


@pytest.mark.parametrize(
    ("path", "stale"),
    [
        ("scheduler/code.py", ["life"]),
        ("wheel/code.py", ["life", "timing_wheel"]),
        (LIFE, ["life"]),
        (WHEEL, ["timing_wheel"]),
        ("requirements.lock", ["life", "timing_wheel"]),
        ("scheduler/new.py", ["life"]),
        ("docs/guide.md", []),
    ],
)
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "not committed"])
def test_a_row_is_stale_if_its_code_its_measurement_or_the_lock_file_changed(
    repository: Repository, path: str, stale: list[str], committed: bool
) -> None:
    origin = Origins(repository).record()
    assert repository.stale(origin) == []
    if committed:
        repository.change(path)
    else:
        repository.write(path, "new")
    assert repository.stale(origin) == stale


def test_a_change_that_is_older_than_the_row_makes_the_row_stale_when_its_branch_is_merged(
    repository: Repository,
) -> None:
    repository.git("switch", "--create", "side")
    repository.change("scheduler/code.py")
    repository.git("switch", "trunk")
    origin = Origins(repository).record()
    repository.change("docs/guide.md")
    assert repository.stale(origin) == []
    repository.git("merge", "--no-edit", "side")
    assert repository.stale(origin) == ["life"]


def test_a_change_that_was_undone_leaves_the_rows_valid(repository: Repository) -> None:
    origin = Origins(repository).record()
    repository.change("scheduler/code.py")
    repository.git("revert", "--no-edit", "HEAD")
    assert repository.stale(origin) == []


@pytest.mark.parametrize("path", ["scheduler/code.py", "tests/new.py"])
def test_a_row_that_was_measured_with_uncommitted_changes_stays_stale(repository: Repository, path: str) -> None:
    repository.write(path, "new")
    origin = Origins(repository).record()
    assert origin["dirty"]
    assert repository.stale(origin) == ["life", "timing_wheel"]
    repository.git("add", ".")
    repository.git("commit", "-m", "what was measured")
    assert repository.stale(origin) == ["life", "timing_wheel"]


def test_the_results_and_pages_that_a_run_writes_do_not_make_its_rows_dirty(repository: Repository) -> None:
    for path in ("bench/results/bench.json", "docs/figures.md", "README.md"):
        repository.write(path, "new")
    assert not Origins(repository).record()["dirty"]


@pytest.mark.parametrize("committed", [True, False], ids=["another commit", "a change"])
def test_a_row_is_dirty_if_the_code_changed_during_the_run(repository: Repository, committed: bool) -> None:
    origins = Origins(repository)
    started = repository.commit()
    if committed:
        repository.change("scheduler/code.py")
    else:
        repository.write("scheduler/code.py", "new")
    origin = origins.record()
    assert (origin["commit"], origin["dirty"]) == (started, True)


def test_the_line_of_a_stale_row_names_the_commit_and_the_number_of_changed_files(repository: Repository) -> None:
    commit = repository.commit()
    result = {"measured": "monday", "commit": commit, "dirty": False}
    repository.change("scheduler/code.py")
    assert describe_age("life", result, ["scheduler"], repository) == [
        f"life: measured monday, 1 file changed since the commit {commit}"
    ]
    repository.write("scheduler/new.py", "new")
    assert describe_age("life", result | {"dirty": True}, ["scheduler"], repository) == [
        f"life: measured monday, with changes that were not committed; 2 files changed since the commit {commit}"
    ]


def test_a_row_of_an_unknown_commit_is_stale(repository: Repository, tmp_path: Path) -> None:
    unknown = {"measured": "monday", "commit": "abcdef123456", "dirty": False}
    assert describe_age("life", unknown, [LIFE], repository) == [
        "life: measured monday, at the commit abcdef123456, which this checkout does not have"
    ]
    for old in ({"measured": "monday"}, {"measured": "monday", "commit": "", "dirty": False}):
        assert describe_age("life", old, [LIFE], repository) == [
            "life: measured monday, at a commit that was not recorded"
        ]
    assert Checkout(tmp_path / "no such folder").commit() == ""


def test_a_row_without_a_result_and_a_result_without_a_row_are_listed(repository: Repository) -> None:
    lines = stale_rows({"old": {"measured": "monday"}}, {"new": [LIFE]}, repository)
    assert lines == ["new: not measured", "old: no measurement has this row any more"]


def test_every_row_keeps_the_origin_of_its_own_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origins = iter([{"measured": day, "commit": day, "dirty": False} for day in ("monday", "tuesday")])
    monkeypatch.setattr(Origins, "record", lambda self: next(origins))
    monkeypatch.setitem(MEASUREMENTS, "backlog", lambda _: [Measurement("backlog", "", "s", [1], None)])
    monkeypatch.setitem(MEASUREMENTS, "relay", lambda _: [Measurement("relay", "", "s", [1], None)])
    measure_rows(["backlog", "relay"], tmp_path, quick=True, about={})
    figures = json.loads((tmp_path / "bench.json").read_text())["figures"]
    assert {name: (row["measured"], row["commit"]) for name, row in figures.items()} == {
        "backlog": ("monday", "monday"),
        "relay": ("tuesday", "tuesday"),
    }


def test_the_comparison_with_other_queues_is_stale_if_its_programs_changed(repository: Repository) -> None:
    result = Origins(repository).record()
    assert describe_age("peers.json", result, SOURCES, repository) == []
    for n, path in enumerate(("scheduler/code.py", "bench/peers/new.mjs", "bench/harness/calibration.py"), 1):
        repository.change(path)
        (line,) = describe_age("peers.json", result, SOURCES, repository)
        assert f" {n} file" in line


def test_the_sources_of_a_row_include_what_it_imports_and_the_programs_that_it_starts() -> None:
    rows = row_sources()
    assert {LIFE, "bench/harness/manual_time.py", "bench/harness/busy_cores.py"} <= rows["life"]
    assert {"bench/harness/watched_service.py", "services/serving_program.py"} <= rows["large_requests_block"]
    assert "bench/no_op/celery_app.py" in rows["worker_against_celery"]
    assert "bench/measurements/relay.py" not in rows["life"]
    assert source_files("bench.no_such_module") == frozenset()
