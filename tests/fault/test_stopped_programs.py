"""Each program handles its signals, even if the program was stopped (SIGSTOP) when the signal arrived."""

import signal
from collections.abc import Callable
from functools import partial

import pytest

from services.process import Process
from tests.fault.stopped_programs import TIMES, check_that_it_ends, send_while_stopped
from tests.support.wait_until import eventually

pytestmark = pytest.mark.fault

NAMES = ["events", "events by lease", "serve", "serve with two processes", "dev"]


@pytest.mark.timeout(300)
@TIMES
@pytest.mark.parametrize(
    "program", ["events", "events by lease", "serve", "serve with two processes", "dev"], indirect=True
)
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
