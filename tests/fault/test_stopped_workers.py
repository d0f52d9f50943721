"""`tickwheel worker` and `tickwheel load` handle their signals, even if they were stopped (SIGSTOP) meanwhile."""

import signal
from collections.abc import Callable

import pytest

from services.process import Process
from tests.fault.stopped_programs import TIMES, check_that_it_ends

pytestmark = pytest.mark.fault


@pytest.mark.timeout(900)
@TIMES
@pytest.mark.parametrize("program", ["worker", "load"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_was_stopped_ends_on_a_signal(
    request: pytest.FixtureRequest, program: Callable[[], Process], number: signal.Signals, times: int
) -> None:
    check_that_it_ends(request.node.callspec.params["program"], program, number, times)
