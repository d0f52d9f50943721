"""Wakes a thread that waits for a socket: a pipe that is readable once somebody has set it."""

import os
import select
from contextlib import suppress
from threading import Lock


class WakePipe:
    """Set from any thread, also after it was closed; waited for and cleared by one."""

    def __init__(self) -> None:
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)
        # A number that was closed may be another file's by the time that it is written to.
        self._lock = Lock()
        self._is_closed = False

    def fileno(self) -> int:
        return self._readable

    def set(self) -> None:
        with self._lock:
            if not self._is_closed:
                # Full is set, too.
                with suppress(BlockingIOError):
                    os.write(self._writable, b"\0")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._readable, 4096):
                pass

    def wait(self, ms: float) -> None:
        """Until it is set, at most so long."""
        poll = select.poll()
        poll.register(self._readable, select.POLLIN)
        poll.poll(max(0, ms))

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._readable)
                os.close(self._writable)
