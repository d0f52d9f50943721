"""Wakes a thread that polls sockets: a pipe that becomes readable when another thread sets it."""

import os
import select
from contextlib import suppress
from threading import Lock


class WakePipe:
    """A flag that any thread can set. One thread waits for it and clears it. After `close`, `set` does nothing."""

    def __init__(self) -> None:
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)
        # Prevents a write after `close`, when the descriptor's number may already belong to another file.
        self._lock = Lock()
        self._is_closed = False

    def fileno(self) -> int:
        return self._readable

    def set(self) -> None:
        with self._lock:
            if not self._is_closed:
                # A full pipe is readable, so the flag is set.
                with suppress(BlockingIOError):
                    os.write(self._writable, b"\0")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._readable, 4096):
                pass

    def wait(self, ms: float) -> None:
        """Block until the flag is set, for at most ``ms``."""
        poll = select.poll()
        poll.register(self._readable, select.POLLIN)
        poll.poll(max(0, ms))

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._readable)
                os.close(self._writable)
