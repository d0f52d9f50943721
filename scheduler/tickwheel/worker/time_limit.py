"""Time limits of tasks, enforced inside the worker process. If that has no effect, the supervisor kills the process."""

import ctypes
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from tickwheel.tasks.exceptions import TimeLimitExceeded

_TICK_S = 0.1


class AlarmLimit:
    """The time limit of tasks in the main thread: an alarm signal, which also interrupts a sleep or a wait."""

    def __init__(self) -> None:
        self._armed = False
        self._seconds = 0.0
        signal.signal(signal.SIGALRM, self._on_alarm)

    def __call__(self, seconds: float) -> Self:
        """Return a context manager that raises TimeLimitExceeded in its ``with`` block after ``seconds``."""
        self._seconds = seconds
        return self

    # Not `contextlib.contextmanager`: its generator would take longer than the system call.
    def __enter__(self) -> None:
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_: object) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise TimeLimitExceeded


class ThreadLimits:
    """The time limits of tasks in other threads. The interpreter raises the error once the thread runs Python code."""

    def __init__(self) -> None:
        self._deadlines: dict[int, float] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, name="tickwheel-limits", daemon=True).start()

    @contextmanager
    def __call__(self, seconds: float) -> Iterator[None]:
        """Raise TimeLimitExceeded in the ``with`` block after ``seconds``."""
        thread = threading.get_ident()
        with self._lock:
            self._deadlines[thread] = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._lock:
                if self._deadlines.pop(thread, None) is None:
                    # The error was set, and may not have been raised yet. Clear it, so that it is not raised later.
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)

    def _watch(self) -> None:
        while True:
            time.sleep(_TICK_S)
            now = time.monotonic()
            with self._lock:
                for thread in [thread_id for thread_id, deadline in self._deadlines.items() if now > deadline]:
                    del self._deadlines[thread]
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread), ctypes.py_object(TimeLimitExceeded)
                    )
