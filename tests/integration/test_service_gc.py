"""`tickwheel serve` sets up Python's garbage collection for a long-lived process."""

import ast
from pathlib import Path

import pytest

from services.serving_program import SERVE, ServingProgram
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

# Runs `tickwheel` with the arguments, and prints the state of the garbage collection at the end of the process.
PROGRAM = """
import atexit, gc
from tickwheel.cli import main
atexit.register(lambda: print("at exit", (gc.get_threshold(), gc.get_freeze_count()), flush=True))
main()
"""


def test_a_process_of_the_service_excludes_its_modules_and_seldom_collects_all_objects(
    tickwheel_server: PrivateServer, tmp_path: Path
) -> None:
    [_, _, *command] = SERVE
    with ServingProgram(tmp_path, "-c", PROGRAM, *command, tickwheel_server.url) as service:
        service.stop()
        log = service.log

    [line] = [line for line in log.splitlines() if line.startswith("at exit ")]
    (young, middle, old), frozen = ast.literal_eval(line.removeprefix("at exit "))
    assert young * middle * old >= 2_000_000
    # The modules of the service have far more objects.
    assert frozen > 50_000
