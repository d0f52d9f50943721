"""Signals that arrive at any point of the main thread's work."""

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

# The main thread only uses the event. A handler in the main thread that set the event would deadlock.
PROGRAM = """
import signal, threading
from tickwheel.runtime.signals import handle_in_thread

received, event = 0, threading.Event()

def count():
    global received
    received += 1
    event.set()

handle_in_thread((signal.SIGTERM,), count)
print("ready", flush=True)
while received < 200:
    event.wait(0.0001)
    event.clear()
"""


def test_a_signal_handler_never_waits_for_the_code_that_it_interrupted() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        while process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
        assert process.returncode in (0, -signal.SIGTERM)
