"""`tickwheel worker` and `tickwheel load` handle their signals, even if they were stopped (SIGSTOP) meanwhile."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.process import Process
from tests.fault.stopped_programs import TIMES, check_that_it_ends, open_program
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault


@pytest.fixture(params=["worker", "load"])
def program(
    request: pytest.FixtureRequest, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> Iterator[Callable[[], Process]]:
    """Return a function that starts the program and waits until it runs."""
    with open_program(request.param, tickwheel_server, namespace, tmp_path) as start:
        yield start


@pytest.mark.timeout(300)
@TIMES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_was_stopped_ends_on_a_signal(
    request: pytest.FixtureRequest, program: Callable[[], Process], number: signal.Signals, times: int
) -> None:
    check_that_it_ends(request.node.callspec.params["program"], program, number, times)
