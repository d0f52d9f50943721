"""A child process that is restarted if it dies."""

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from tests.fault.worker_processes import ROOT, is_process
from tests.support.wait_until import eventually
from tickwheel.runtime.child_process import ChildProcess

pytestmark = pytest.mark.integration

# The program has no free descriptor for the pipe of its child while the child is restarted.
FULL_PROGRAM = """
import logging, os, resource, signal, sys
from tickwheel.runtime.child_process import ChildProcess
from tests.support.wait_until import eventually

class Continue(logging.Handler):
    def emit(self, record):
        if record.getMessage().startswith("cannot start the event process: "):
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))

logging.getLogger("tickwheel").addHandler(Continue())
child = ChildProcess([sys.executable, "-c", "import sys; sys.stdin.read()"])
first = child.pid
resource.setrlimit(resource.RLIMIT_NOFILE, (FREE, 100))
os.kill(first, signal.SIGKILL)
eventually(lambda: child.pid != first, "the child is restarted")
child.stop()
print("restarted")
"""


@pytest.mark.parametrize("free", [3, 6])
def test_a_child_is_restarted_after_a_restart_has_failed(free: int) -> None:
    program = FULL_PROGRAM.replace("FREE", str(free))
    finished = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, timeout=60, check=False
    )
    assert finished.stdout == b"restarted\n"


class SlowPath:
    """The path of a program, which the system receives only after `is_free`."""

    def __init__(self) -> None:
        self.is_used = threading.Event()
        self.is_free = threading.Event()
        self.is_free.set()

    def __fspath__(self) -> str:
        self.is_used.set()
        self.is_free.wait(60)
        return sys.executable


def test_a_child_that_is_being_restarted_during_a_stop_is_killed_if_it_does_not_end() -> None:
    path: Any = SlowPath()
    # The child ignores the end of its input.
    child = ChildProcess([path, "-c", "import threading; threading.Event().wait()"], stop_s=0.2)
    path.is_free.clear()
    path.is_used.clear()
    os.kill(child.pid, signal.SIGKILL)
    assert path.is_used.wait(20)
    stopping = threading.Thread(target=child.stop, daemon=True)
    stopping.start()
    eventually(child._stopping.is_set, "the stop has begun")
    path.is_free.set()
    stopping.join(20)
    assert not stopping.is_alive()
    assert not is_process(child.pid)
