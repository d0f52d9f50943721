"""A child process whose program ends while the child still starts, and one that is asked to hand over."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

# The main thread waits, as for a server that does not answer.
STARTING = """
import threading
from tickwheel.event_process import parent_input
parent_input._START_S = 0.2
parent_input.ParentInput().start()
print("started", flush=True)
threading.Event().wait()
"""

# The event process is asked to hand over. `others` are the answers to the question whether there are other members.
ASKED = """
import sys, threading
from tickwheel.event_process import parent_input
parent_input._CHECK_S = float(sys.argv[1])
others = [bool(int(digit)) for digit in sys.argv[2]]

class Process:
    def has_others(self):
        return others.pop(0)

    def has_higher_members(self):
        return bool(int(sys.argv[3]))

    def stop(self):
        print("stopped", len(others), flush=True)

parent = parent_input.ParentInput()
parent.attach(Process())
parent.start()
threading.Event().wait()
"""


def test_a_child_that_never_ends_its_start_ends_after_its_program() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"started\n"
        child.stdin.close()
        assert child.wait(20) == 0


def stop_when_asked(check_s: float, others: str, *, higher: bool) -> bytes:
    """Ask the event process to hand over. Return what it prints when it stops: how many answers are left."""
    command = [sys.executable, "-c", ASKED, str(check_s), others, str(int(higher))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        try:
            return child.stdout.readline()
        finally:
            child.kill()


def test_a_process_hands_over_at_once_to_a_member_with_a_higher_id() -> None:
    # Without the higher id, it would wait for longer than the test may last.
    assert stop_when_asked(3_600.0, "1", higher=True) == b"stopped 0\n"


def test_the_process_with_the_highest_id_waits_for_the_others_that_leave() -> None:
    # At the request, there are others. They leave, and later another one comes and stays.
    assert stop_when_asked(0.1, "10011", higher=False) == b"stopped 0\n"
    assert stop_when_asked(0.1, "111", higher=False) == b"stopped 1\n"
