"""A real event process on a clock that a test controls. Usage: manual_clock_event_process.py URL NAMESPACE LOCK."""

import sys
from pathlib import Path

from tickwheel.event_process.main import run
from tickwheel.testing.virtual_clock import FRAGMENT

if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), None, None, clock=FRAGMENT)
