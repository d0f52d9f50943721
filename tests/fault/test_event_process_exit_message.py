"""An event process that cannot continue logs the reason in one line: its log is the terminal of the operator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault


def run_until_exit(url: str, lock: Path, *more: str) -> tuple[int, list[str]]:
    """Run an event process that exits on its own, and return its exit code and log."""
    command = [sys.executable, "-m", "tickwheel.event_process", "--namespace", "ends", "--lock", str(lock), *more]
    environment = os.environ | {"TICKWHEEL_URL": url}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def test_an_unusable_directory_is_reported_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("")
    code, [line] = run_until_exit("unix:///nowhere", tmp_path / "lock", "--data-dir", str(file))
    assert code == 1
    assert "ERROR tickwheel.driving: the event process of namespace ends exits: " in line
    assert str(file) in line


def test_a_lock_that_cannot_be_written_is_reported_in_one_line(tickwheel_server: PrivateServer, tmp_path: Path) -> None:
    code, [line] = run_until_exit(tickwheel_server.url, tmp_path / "missing" / "lock")
    tickwheel_server.clear("ends")
    assert code == 1
    assert " exits: [Errno 2] No such file or directory" in line
