"""A process that is kept running, as an init system does: when it has ended it is started again, under a new name."""

import threading
import time
from collections.abc import Callable

from services.process import Process

# A name, and the process of that name, which is not started.
Make = Callable[[str], Process]


class RestartedProcess:
    """One place for a process. ``after_s`` is how long it stays empty once its process has ended by itself.

    Whoever breaks the process and whoever looks after it are different threads.
    """

    def __init__(self, name: str, make: Make, after_s: float = 0.1) -> None:
        self.name = name
        self.ended: list[Process] = []
        self.process = make(f"{name}-0")
        self._make = make
        self._after_s = after_s
        self._empty_until = 0.0
        self._one_at_a_time = threading.RLock()
        self.process.launch()

    @property
    def is_running(self) -> bool:
        """Whether its process is there, paused or not."""
        with self._one_at_a_time:
            return self.process.is_running

    def restart_if_ended(self) -> None:
        """Start the next where the last has ended."""
        with self._one_at_a_time:
            if self.process.is_running:
                return
            if not self._empty_until:
                self._empty_until = time.monotonic() + self._after_s
            if time.monotonic() >= self._empty_until:
                self._empty_until = 0.0
                self.process.kill()
                self.replace()

    def replace(self) -> Process:
        """Start the next beside its process, which the caller answers for from now on."""
        with self._one_at_a_time:
            before = self.process
            self.ended.append(before)
            self.process = self._make(f"{self.name}-{len(self.ended)}")
            self.process.launch()
            return before

    def kill(self, stays_away_s: float = 0.0) -> None:
        """End its process at once; the next one comes after a while."""
        with self._one_at_a_time:
            self._empty_until = time.monotonic() + max(stays_away_s, self._after_s)
            self.process.kill()

    def stop(self) -> None:
        """End its process as an operator does."""
        with self._one_at_a_time:
            self._empty_until = time.monotonic() + self._after_s
            self.process.stop()

    def close(self) -> None:
        """End its process, and those that were replaced."""
        for process in [*self.ended, self.process]:
            process.kill()
