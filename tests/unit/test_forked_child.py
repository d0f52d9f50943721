"""A child that a task forks ends where the task ends. It never runs the code of its parent."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

PROGRAM = """
import os, sys
from tickwheel.runtime.forked_child import end_forked_children

def fork():
    child = os.fork()
    if child == 0:
        {child}
    return child

child = None
try:
    with end_forked_children():
        child = fork()
finally:
    print("after the block", flush=True)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(
    ("child", "code", "error"),
    [
        ("return 0", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no room')", 1, "no room\n"),
        ("raise ValueError('of the child')", 1, "ValueError: of the child\n"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt\n"),
        ("print('unfinished line', end=''); return 0", 0, ""),
    ],
)
def test_a_forked_child_ends_at_the_end_of_the_block(child: str, code: int, error: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(child=child)],
        env=os.environ | {"PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.replace("unfinished line", "") == f"after the block\n{code}\n"
    assert ("unfinished line" in done.stdout) == ("unfinished" in child)
    assert done.stderr.endswith(error)
    assert bool(done.stderr) == bool(error)


HOSTILE = r"x\n2030-01-01 00:00:00,000 INFO tickwheel.worker: forged\x1b[2J"


@pytest.mark.parametrize("child", ["raise ValueError('{}')", "sys.exit('{}')"], ids=["error", "exit"])
def test_the_error_of_a_child_adds_no_line_to_the_log_of_the_program(child: str) -> None:
    log = "from tickwheel.runtime.log_format import log_to_stderr\nlog_to_stderr()\n"
    done = subprocess.run(
        [sys.executable, "-c", log + PROGRAM.format(child=child.format(HOSTILE))],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "forged" in done.stderr
    assert "\x1b" not in done.stderr
    assert not [line for line in done.stderr.split("\n") if line.startswith("2030")]


def test_the_error_of_a_child_is_json_in_a_log_of_json() -> None:
    log = "from tickwheel.runtime.log_format import log_to_stderr\nlog_to_stderr(json=True)\n"
    done = subprocess.run(
        [sys.executable, "-c", log + PROGRAM.format(child="raise ValueError('of the child')")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    [line] = done.stderr.splitlines()
    assert "ValueError: of the child" in json.loads(line)["traceback"]
