"""A short run of the fault harness for every change: some rows with a fixed seed, and some with a new seed."""

import os
from collections.abc import Iterator

import pytest

from tests.fault.harness.plan import campaign
from tests.fault.harness.rows import ROWS, plan
from tests.fault.harness.run import run
from tests.fault.harness.shared_services import SharedServices

pytestmark = pytest.mark.fault

# Duration of the load of most rows. A run takes about ten seconds more.
SECONDS = 4.0
# Rows that run on every machine.
ALWAYS = ("F1L", "F8", "F10", "F14", "F32")
# Rows that start ZooKeeper or a cluster. They keep the duration of their plan.
WITH_SERVICES = ("F1", "F13F")
SEED = 1
NEW_SEED = int(os.environ["TICKWHEEL_TEST_SEED"])
NEW_ROWS = 1


def _new_runs() -> list[tuple[str, int]]:
    # New seeds use the same rows. The other rows have larger faults and run in `make faults`.
    runs = campaign(NEW_SEED, sorted(ALWAYS))
    return [next(runs) for _ in range(NEW_ROWS)]


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedServices]:
    """Services that all runs share."""
    with SharedServices() as services:
        yield services


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("row", "seed"), [(row, SEED) for row in ALWAYS + WITH_SERVICES] + _new_runs())
def test_every_invariant_holds_under_the_faults_of_a_row(
    row: str, seed: int, shared: SharedServices, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f" replay by: python -m tests.fault.harness --replay {row}:{seed} ", end="", flush=True)
    outcome = run(plan(row, seed, SECONDS if row in ALWAYS else None), shared)

    assert outcome.violations == []
    assert outcome.void == []
    assert outcome.messages > 0


def test_the_same_seed_gives_the_same_plan() -> None:
    for row in ROWS:
        assert plan(row, SEED) == plan(row, SEED)
        assert plan(row, SEED).load != plan(row, SEED + 1).load
    runs, again = campaign(SEED, list(ROWS)), campaign(SEED, list(ROWS))
    assert [next(runs) for _ in range(100)] == [next(again) for _ in range(100)]
