"""Signals that are answered in a thread of their own.

A handler runs between two steps of the main thread, whatever that holds: one that takes a lock, as setting an Event
does, waits for ever where the main thread was about to let go of it.
"""

import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue


def handle_in_thread(numbers: tuple[signal.Signals, ...], action: Callable[[], object]) -> None:
    """Have ``action`` called for each of these signals. To be called in the main thread."""
    # Its `put` may interrupt itself.
    received: SimpleQueue[int] = SimpleQueue()
    for number in numbers:
        signal.signal(number, lambda number, frame: received.put(number))

    def handle_signals() -> None:
        while True:
            received.get()
            action()

    threading.Thread(target=handle_signals, name="tickwheel-signals", daemon=True).start()
