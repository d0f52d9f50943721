"""The event process that runs as a child of a program: it is restarted if it is killed, and ends with the program."""

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.embedded.file_lock import is_free
from tickwheel.runtime.child_process import ChildProcess

pytestmark = pytest.mark.fault


def child_of(tickwheel: Tickwheel) -> int:
    child = tickwheel._processes._child
    assert isinstance(child, ChildProcess)
    return child.pid


def test_a_killed_event_process_is_restarted_and_promotes_due_messages(tmp_path: Path) -> None:
    with Tickwheel(data_dir=tmp_path) as tickwheel:
        queue = tickwheel.queue("jobs")
        queue.enqueue(b"before", delay=timedelta(milliseconds=100))
        [before] = queue.dequeue(wait=timedelta(seconds=20))
        first = child_of(tickwheel)
        os.kill(first, signal.SIGKILL)
        queue.enqueue(b"after", delay=timedelta(milliseconds=100))
        [after] = queue.dequeue(wait=timedelta(seconds=20))
        assert (before.payload, after.payload) == (b"before", b"after")
        assert child_of(tickwheel) != first


def kill_program_after(data_dir: Path, drive: bool | None, expression: str) -> int:
    """Run a program with a client ``tw``, return the value of an expression in the program, and kill the program."""
    code = (
        "import sys, tickwheel\n"
        f"tw = tickwheel.Tickwheel(data_dir=sys.argv[1], drive={drive})\n"
        f"print({expression}, flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(data_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        number = int(program.stdout.readline())
        program.kill()
    return number


def test_the_event_process_ends_with_a_program_that_is_killed(tmp_path: Path) -> None:
    child = kill_program_after(tmp_path, None, "tw._processes._child.pid")
    eventually(lambda: not Path(f"/proc/{child}").exists(), "the child of a killed program has ended")
    # The child was the last process that used the server, so it has stopped the server, too.
    assert is_free(tmp_path / "server.lock")
    with Tickwheel(data_dir=tmp_path, drive=False) as tickwheel:
        assert tickwheel.queues() == []


def test_a_killed_program_without_event_process_leaves_the_server_running_for_the_next(tmp_path: Path) -> None:
    server = kill_program_after(tmp_path, False, "tw._processes.server.pid")
    with Tickwheel(data_dir=tmp_path, drive=False) as tickwheel:
        assert tickwheel._processes.server is not None
        assert tickwheel._processes.server.pid == server
    assert is_free(tmp_path / "server.lock")
