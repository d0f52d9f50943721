"""Each program handles its signals, even if the program was stopped (SIGSTOP) when the signal arrived."""

import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from services.process import Process
from tests.fault.stopped_programs import TIMES, check_that_it_ends, open_program, send_while_stopped
from tests.support.wait_until import eventually
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault


@pytest.fixture(params=["events", "events by lease", "serve", "serve with two processes", "dev"])
def program(
    request: pytest.FixtureRequest, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> Iterator[Callable[[], Process]]:
    """Return a function that starts the program and waits until it runs."""
    with open_program(request.param, tickwheel_server, namespace, tmp_path) as start:
        yield start


@pytest.mark.timeout(300)
@TIMES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_was_stopped_ends_on_a_signal(
    request: pytest.FixtureRequest, program: Callable[[], Process], number: signal.Signals, times: int
) -> None:
    check_that_it_ends(request.node.callspec.params["program"], program, number, times)


@TIMES
@pytest.mark.parametrize("program", ["events", "events by lease"], indirect=True)
def test_an_event_process_that_was_stopped_handles_sigusr1(program: Callable[[], Process], times: int) -> None:
    with program() as process:

        def is_handled(count: int) -> bool:
            return process.log.count("there is no step of a server's clock to accept") == count

        for count in range(1, times + 1):
            send_while_stopped(process, signal.SIGUSR1)
            eventually(partial(is_handled, count), f"signal {count} is handled")
