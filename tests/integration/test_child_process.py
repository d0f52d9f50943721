"""A child process that is restarted if it dies."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.fault.worker_processes import ROOT, is_process
from tests.support.wait_until import eventually
from tickwheel.runtime import child_process
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


class Ends:
    """The exit codes of a child that is restarted unless it ends with code 0."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def on_end(self, code: int) -> bool:
        self.codes.append(code)
        return code == 0


def test_a_child_that_has_nothing_to_do_is_not_restarted(caplog: pytest.LogCaptureFixture) -> None:
    ends = Ends()
    child = ChildProcess([sys.executable, "-c", ""], on_end=ends.on_end)
    eventually(lambda: ends.codes == [0], "the child has ended")
    child.stop()
    assert ends.codes == [0]
    assert caplog.messages == []


def test_a_child_that_fails_is_restarted_although_it_may_end() -> None:
    ends = Ends()
    child = ChildProcess([sys.executable, "-c", "import sys; sys.stdin.read()"], on_end=ends.on_end)
    first = child.pid
    os.kill(first, signal.SIGKILL)
    eventually(lambda: child.pid != first, "the child is restarted")
    child.stop()
    assert ends.codes == [-signal.SIGKILL]


def test_a_child_is_not_left_behind_if_nobody_can_watch_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    # The children of other tests, which may run on.
    before = set(child_process._children)

    def refuse(thread: threading.Thread) -> None:
        started.extend(child._process.pid for child in set(child_process._children) - before)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        ChildProcess([sys.executable, "-c", "import sys; sys.stdin.read()"])
    assert started
    assert not any(map(is_process, started))


def test_the_pause_before_a_restart_is_short_again_after_a_long_life(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Every life counts as long.
    monkeypatch.setattr(child_process, "LONG_LIFE_S", 0.0)
    child = ChildProcess([sys.executable, "-c", "raise SystemExit(3)"], label="it")
    eventually(lambda: len(caplog.records) >= 5, "the child is restarted")
    child.stop()
    pauses = [vars(record)["fields"]["again_s"] for record in caplog.records]
    assert max(pauses) <= child_process.RESTART_BACKOFF_S[0]


def test_a_child_reads_what_its_program_sends(tmp_path: Path) -> None:
    file = tmp_path / "read"
    code = f"import os; open({str(file)!r}, 'wb').write(os.read(0, 10)); os.read(0, 10)"
    child = ChildProcess([sys.executable, "-c", code])
    child.send(b"x")
    eventually(lambda: file.exists() and file.read_bytes() == b"x", "the child reads")
    child.stop()
    child.send(b"x")


def test_a_child_that_waits_for_its_restart_is_not_started_after_the_last_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_process, "RESTART_BACKOFF_S", (600.0, 600.0))
    ends = Ends()
    child = ChildProcess([sys.executable, "-c", "raise SystemExit(3)"], on_end=ends.on_end)
    eventually(lambda: ends.codes == [3], "the child has ended")
    first = child.pid
    child.send_last(b"x")
    # The program must know that no child runs.
    eventually(lambda: ends.codes == [3, 3], "the end is reported again")
    child.stop()
    assert child.pid == first


def test_a_child_that_gets_the_last_data_is_not_restarted_and_reports_its_end(tmp_path: Path) -> None:
    file = tmp_path / "read"
    ends = Ends()
    code = f"import os; open({str(file)!r}, 'wb').write(os.read(0, 10)); raise SystemExit(3)"
    child = ChildProcess([sys.executable, "-c", code], on_end=ends.on_end)
    child.send_last(b"x")
    eventually(lambda: ends.codes == [3], "the child has ended")
    child.stop()
    assert file.read_bytes() == b"x"
    assert ends.codes == [3]


def test_a_process_that_is_forked_during_the_start_of_a_child_closes_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes: list[tuple[int, int]] = []
    codes: list[int] = []
    make_pipe = os.pipe

    def record_pipe() -> tuple[int, int]:
        pipes.append(make_pipe())
        return pipes[-1]

    def fork(*arguments: object, **options: object) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                os.fstat(pipes[-1][1])
            except OSError:
                os._exit(0)
            finally:
                os._exit(1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        raise OSError("no resources")

    monkeypatch.setattr(os, "pipe", record_pipe)
    monkeypatch.setattr(subprocess, "Popen", fork)
    with pytest.raises(OSError, match="no resources"):
        ChildProcess(["true"])
    assert codes == [0]


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


def test_a_child_that_is_being_restarted_during_a_stop_is_killed_if_it_does_not_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
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
    assert caplog.messages[-1] == "the event process did not end within 0.2 s: it is killed"
