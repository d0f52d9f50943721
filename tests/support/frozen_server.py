"""A Redis server whose process is stopped for a while."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.paused_process import pause


@contextmanager
def frozen(server: Any) -> Iterator[None]:
    """Stop the process of the server with SIGSTOP, and continue it at the end. ``server`` is a client of redis-py."""
    pid = server.info("server")["process_id"]
    pause(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
