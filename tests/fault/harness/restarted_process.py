"""A process that is restarted under a new name when it ends, like by an init system."""

import threading
import time
from collections.abc import Callable

from services.process import Process

# Returns a process with this name, not started.
Make = Callable[[str], Process]


class RestartedProcess:
    """A process with restarts. ``after_s`` is the time between its end and the restart.

    Thread-safe, because different threads inject faults and restart processes.
    """

    def __init__(self, name: str, make: Make, after_s: float = 0.1) -> None:
        self.name = name
        self.ended: list[Process] = []
        self.process = make(f"{name}-0")
        self._make = make
        self._after_s = after_s
        self._empty_until = 0.0
        self._lock = threading.RLock()
        self.process.launch()

    @property
    def is_running(self) -> bool:
        """Whether the process is running, paused or not."""
        with self._lock:
            return self.process.is_running

    def restart_if_ended(self) -> None:
        """Start the next process if the last process has ended and its pause is over."""
        with self._lock:
            if self.process.is_running:
                return
            if not self._empty_until:
                self._empty_until = time.monotonic() + self._after_s
            if time.monotonic() >= self._empty_until:
                self._empty_until = 0.0
                self.process.kill()
                self.replace()

    def replace(self) -> Process:
        """Start the next process, and return the current process, which the caller must end."""
        with self._lock:
            before = self.process
            self.ended.append(before)
            self.process = self._make(f"{self.name}-{len(self.ended)}")
            self.process.launch()
            return before

    def kill(self, downtime_s: float = 0.0) -> None:
        """Kill the process. The next process starts after the longer of ``downtime_s`` and ``after_s``."""
        with self._lock:
            self._empty_until = time.monotonic() + max(downtime_s, self._after_s)
            self.process.kill()

    def stop(self) -> None:
        """Stop the process like an operator."""
        with self._lock:
            self._empty_until = time.monotonic() + self._after_s
            self.process.stop()

    def close(self) -> None:
        """Kill the process, and all processes that were replaced."""
        for process in [*self.ended, self.process]:
            process.kill()
