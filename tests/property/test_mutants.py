"""The machine of all operations detects each fault in the scripts."""

from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.errors import HypothesisException
from hypothesis.stateful import run_state_machine_as_test

from tests.property.clock_step_machine import ClockStepMachine
from tests.property.mutants import MUTANTS, Mutant, load_mutant
from tests.property.scheduler_machine import SchedulerMachine
from tests.property.test_operations import IN_CI, machine
from tickwheel.storage import scripts
from tickwheel.testing import PrivateServer
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.property


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.name.replace(" ", "-"), marks=[pytest.mark.soak] * mutant.is_rare)
        for mutant in MUTANTS
    ],
)
def test_the_machine_detects_a_fault(mutant: Mutant, tickwheel_server: PrivateServer, tmp_path: Path) -> None:
    hurried = settings(IN_CI, max_examples=600, phases=[Phase.generate], report_multiple_bugs=False)
    base = ClockStepMachine if mutant.clock_steps else SchedulerMachine
    with load_mutant(mutant, tmp_path):
        _must_load(tickwheel_server)
        with pytest.raises(Exception) as noticed:  # noqa: PT011  # any failure counts
            run_state_machine_as_test(machine(tickwheel_server, mutant.namespace, base), settings=hurried)
    assert not isinstance(noticed.value, HypothesisException)


def _must_load(server: PrivateServer) -> None:
    """Check that the faulty script is valid Lua; a syntax error proves nothing."""
    with server.client() as client:
        for name in scripts.names():
            client.script_load(scripts.load(name, FRAGMENT).source)
