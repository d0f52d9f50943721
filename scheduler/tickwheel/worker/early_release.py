"""Releases messages that wait behind a long task, so that a consumer that is idle can run them.

A consumer takes a batch of messages and runs their tasks one by one. Without this thread, a task of a second could wait
behind one of ten minutes while other consumers are idle.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tickwheel.worker.completer import FinishedTask

# The longest time for which a message waits in a process for the messages before it, in seconds.
LONGEST_WAIT_S: Final = 1.0
# Time between two checks, while messages wait.
_CHECK_S: Final = 0.25


class WaitingMessages(Iterator[FinishedTask]):
    """The messages of a consumer's batch whose tasks have not begun. Iterate to begin their tasks.

    The consumer and the thread of `EarlyRelease` take messages from it at the same time. Each message is taken once,
    because the operations of a deque are atomic.
    """

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake
        self._messages: deque[FinishedTask] = deque()
        self._since = 0.0

    def begin(self, messages: Iterable[FinishedTask]) -> None:
        """Begin a batch, after all messages of the last one were taken."""
        self._since = time.monotonic()
        self._messages.extend(messages)
        if len(self._messages) > 1 and not self._wake.is_set():
            self._wake.set()

    def __next__(self) -> FinishedTask:
        try:
            return self._messages.popleft()
        except IndexError:
            raise StopIteration from None

    def __len__(self) -> int:
        return len(self._messages)

    def has_waited(self, seconds: float) -> bool:
        """Return whether the messages have waited for longer than ``seconds``."""
        return time.monotonic() - self._since > seconds


class EarlyRelease:
    """The thread that passes messages to ``release`` if they have waited for `LONGEST_WAIT_S`.

    It sleeps while no messages wait.
    """

    def __init__(self, release: Callable[[FinishedTask], None]) -> None:
        self._release = release
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._consumers: list[WaitingMessages] = []
        self._thread = threading.Thread(target=self._run, name="tickwheel-release", daemon=True)

    def add_consumer(self) -> WaitingMessages:
        """Return the waiting messages of one more consumer. Do this before `start`."""
        messages = WaitingMessages(self._wake)
        self._consumers.append(messages)
        return messages

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the thread. All messages that it has taken are passed on by then."""
        self._closing.set()
        self._wake.set()
        self._thread.join()

    def _check(self) -> None:
        """Release the messages that have waited for too long."""
        for messages in self._consumers:
            if messages.has_waited(LONGEST_WAIT_S):
                for task in messages:
                    self._release(task)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            # Before the check of the batches: one that begins later wakes this thread again.
            self._wake.clear()
            while any(map(len, self._consumers)) and not self._closing.wait(_CHECK_S):
                self._check()
