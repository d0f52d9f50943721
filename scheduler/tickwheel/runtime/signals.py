"""Signals that a separate thread handles.

Python runs a signal handler in the main thread, between two bytecode instructions. A handler that takes a lock, as
`Event.set` does, blocks indefinitely if the interrupted main thread holds this lock.
"""

import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue


def handle_in_thread(numbers: tuple[signal.Signals, ...], action: Callable[[], object]) -> None:
    """Call ``action`` in a thread for each of these signals. Must be called in the main thread."""
    # `SimpleQueue.put` is reentrant: a signal may interrupt the `put` of another.
    received: SimpleQueue[int] = SimpleQueue()
    for number in numbers:
        signal.signal(number, lambda number, frame: received.put(number))

    def handle_signals() -> None:
        while True:
            received.get()
            action()

    threading.Thread(target=handle_signals, name="tickwheel-signals", daemon=True).start()
