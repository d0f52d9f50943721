"""Signals that are answered in a thread of their own.

A handler runs between two steps of the main thread, whatever that holds: one that takes a lock, as setting an Event
does, waits for ever where the main thread was about to let go of it.
"""

import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue


def hear(numbers: tuple[signal.Signals, ...], action: Callable[[], object]) -> None:
    """Have ``action`` called for each of these signals. To be called in the main thread."""
    # Its `put` may interrupt itself.
    heard: SimpleQueue[int] = SimpleQueue()
    for number in numbers:
        signal.signal(number, lambda number, frame: heard.put(number))

    def answer() -> None:
        while True:
            heard.get()
            action()

    threading.Thread(target=answer, name="tickwheel-signals", daemon=True).start()
