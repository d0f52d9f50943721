"""Time limits of tasks, enforced inside the worker process. If that has no effect, the supervisor kills the process."""

import ctypes
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Final, Protocol, Self

from tickwheel.tasks.exceptions import TimeLimitExceeded

# The error of a message whose task did not stop at its time limit.
KILLED_OVER_LIMIT: Final = "over its time limit, and did not stop: its worker process was killed"
_TICK_S = 0.1
# A timer of zero seconds would be no timer.
_SHORTEST_S = 1e-6


class RunningTask(Protocol):
    """The means to raise an error in the task that runs in the calling thread, within its time limit."""

    def soft(self, seconds: float, error: type[Exception]) -> AbstractContextManager[None]:
        """Return a context manager that raises ``error`` in its ``with`` block after ``seconds``.

        If the time limit of the task ends earlier, the context manager does nothing.
        """

    def interruptible(self, error: type[BaseException]) -> AbstractContextManager[Callable[[], None]]:
        """Return a context manager for a function. Another thread calls the function to raise ``error`` in the block.

        After the end of the block, the function does nothing.
        """


_installed: list[RunningTask] = []


def install(limit: RunningTask) -> None:
    """Make the functions below use this limit, the limit of all consumers of the process."""
    _installed[:] = [limit]


def raise_after(seconds: float, error: type[Exception]) -> AbstractContextManager[None]:
    """Return a context manager that raises ``error`` in the running task after ``seconds``.

    The task can catch the error, and then goes on until its time limit. Outside of a worker process, the context
    manager does nothing.
    """
    return _installed[0].soft(seconds, error) if _installed else nullcontext()


def interruptible(error: type[BaseException]) -> AbstractContextManager[Callable[[], None]]:
    """Return the context manager of `RunningTask.interruptible`. Outside of a worker process, its function does
    nothing.
    """
    return _installed[0].interruptible(error) if _installed else nullcontext(lambda: None)


class AlarmLimit:
    """The time limit of tasks in the main thread: an alarm signal, which also interrupts a sleep or a wait."""

    def __init__(self) -> None:
        self._armed = False
        self._seconds = 0.0
        self._ends = 0.0
        # The error of the next alarm, if that is not the alarm of the time limit.
        self._error: type[BaseException] | None = None
        self._lock = threading.Lock()
        signal.signal(signal.SIGALRM, self._on_alarm)

    def __call__(self, seconds: float) -> Self:
        """Return a context manager that raises TimeLimitExceeded in its ``with`` block after ``seconds``."""
        self._seconds = seconds
        return self

    # Not `contextlib.contextmanager`: its generator would take longer than the system call.
    def __enter__(self) -> None:
        self._armed = True
        self._ends = time.monotonic() + self._seconds
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_: object) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def soft(self, seconds: float, error: type[Exception]) -> Iterator[None]:
        """See `RunningTask`."""
        if not self._armed or time.monotonic() + seconds >= self._ends:
            yield
            return
        self._error = error
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            self._error = None
            if self._armed:
                self._set_hard_alarm()

    @contextmanager
    def interruptible(self, error: type[BaseException]) -> Iterator[Callable[[], None]]:
        """See `RunningTask`."""
        runs = [True]

        def interrupt() -> None:
            with self._lock:
                if runs:
                    self._error = error
                    signal.setitimer(signal.ITIMER_REAL, _SHORTEST_S)

        try:
            yield interrupt
        finally:
            with self._lock:
                runs.clear()
                if self._error is error:
                    self._error = None
                    self._set_hard_alarm()

    def _set_hard_alarm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, max(self._ends - time.monotonic(), _SHORTEST_S))

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        if not self._armed:
            return
        if self._error is not None:
            error, self._error = self._error, None
            self._set_hard_alarm()
            raise error
        if time.monotonic() < self._ends:
            # The alarm of another error, which came when the block for this error had just ended.
            self._set_hard_alarm()
            return
        self._armed = False
        raise TimeLimitExceeded


class ThreadLimits:
    """The time limits of tasks in other threads. The interpreter raises the error once the thread runs Python code."""

    def __init__(self) -> None:
        self._deadlines: dict[int, float] = {}
        self._soft_deadlines: dict[int, tuple[float, type[Exception]]] = {}
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
                    _raise_in(thread, None)

    @contextmanager
    def soft(self, seconds: float, error: type[Exception]) -> Iterator[None]:
        """See `RunningTask`."""
        thread, ends = threading.get_ident(), time.monotonic() + seconds
        with self._lock:
            if ends < self._deadlines.get(thread, 0.0):
                self._soft_deadlines[thread] = ends, error
            is_set = thread in self._soft_deadlines
        try:
            yield
        finally:
            with self._lock:
                if self._soft_deadlines.pop(thread, None) is None and is_set:
                    self._clear(thread)

    @contextmanager
    def interruptible(self, error: type[BaseException]) -> Iterator[Callable[[], None]]:
        """See `RunningTask`."""
        thread = threading.get_ident()
        runs, interrupted = [True], list[bool]()

        def interrupt() -> None:
            with self._lock:
                if runs:
                    interrupted.append(True)
                    _raise_in(thread, error)

        try:
            yield interrupt
        finally:
            with self._lock:
                runs.clear()
                if interrupted:
                    self._clear(thread)

    def _clear(self, thread: int) -> None:
        """Remove an error that was set in the thread, and may not have been raised yet. Keep that of the time limit."""
        _raise_in(thread, None if thread in self._deadlines else TimeLimitExceeded)

    def _watch(self) -> None:
        while True:
            time.sleep(_TICK_S)
            now = time.monotonic()
            with self._lock:
                for thread, (ends, error) in list(self._soft_deadlines.items()):
                    if now > ends:
                        del self._soft_deadlines[thread]
                        _raise_in(thread, error)
                for thread in [thread_id for thread_id, deadline in self._deadlines.items() if now > deadline]:
                    del self._deadlines[thread]
                    _raise_in(thread, TimeLimitExceeded)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Make the interpreter raise the error in the thread. None removes an error that was not raised yet."""
    error_object = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error_object)
