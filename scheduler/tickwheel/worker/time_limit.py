"""How a task that takes too long is stopped from inside of its process; the supervisor kills what does not heed it."""

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
    """For tasks in the main thread: an alarm signal, which wakes what sleeps or waits, too."""

    def __init__(self) -> None:
        self._armed = False
        self._seconds = 0.0
        signal.signal(signal.SIGALRM, self._on_alarm)

    def __call__(self, seconds: float) -> Self:
        """What runs inside of it ends by TimeLimitExceeded after so long."""
        self._seconds = seconds
        return self

    # Not a generator's: that takes longer than the timer.
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
    """For tasks in other threads: the interpreter raises the error there, once it runs Python code again."""

    def __init__(self) -> None:
        self._deadlines: dict[int, float] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, name="tickwheel-limits", daemon=True).start()

    @contextmanager
    def __call__(self, seconds: float) -> Iterator[None]:
        """What runs inside of it ends by TimeLimitExceeded after so long."""
        thread = threading.get_ident()
        with self._lock:
            self._deadlines[thread] = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._lock:
                if self._deadlines.pop(thread, None) is None:
                    # It has been set, and may not have been raised yet: not outside of the task.
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
