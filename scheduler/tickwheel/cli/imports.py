"""Imports while a command starts."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tickwheel.client.exit_codes import ExitCode
from tickwheel.runtime.gc_freeze import without_gc


@contextmanager
def while_importing() -> Iterator[None]:
    """Make Ctrl-C end the process in the ``with`` block, and collect no garbage there.

    The imports take a moment, and have nothing to clean up. A module could catch KeyboardInterrupt.
    """
    # A shell ignores SIGINT in background jobs. Then this process ignores the signal, too.
    is_usual = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
        and threading.current_thread() is threading.main_thread()
    )
    if is_usual:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(ExitCode.INTERRUPTED))
    try:
        with without_gc():
            yield
    finally:
        if is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
