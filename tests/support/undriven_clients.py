"""Clients that check whether an event process makes their messages deliverable."""

import subprocess
import sys
import threading

_SCRIPT = """
import sys
from tickwheel import Tickwheel
Tickwheel(sys.argv[1], namespace=sys.argv[2]).queue("jobs").enqueue(delay=3600)
"""


def checks() -> list[threading.Thread]:
    """Return the threads of the checks that are in progress in this process."""
    return [thread for thread in threading.enumerate() if thread.name == "tickwheel-undriven"]


def run_script(url: str, namespace: str) -> str:
    """Run a script that ends after it has enqueued a delayed message. Return its standard error."""
    command = [sys.executable, "-c", _SCRIPT, url, namespace]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr
