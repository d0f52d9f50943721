"""A step of a load, repeated in a thread."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(step: Callable[[], None], pause_s: float, stopping: threading.Event | None = None) -> Iterator[None]:
    """Repeat the step in the ``with`` block, with pauses, until ``stopping`` is set or the block ends."""
    stopping = stopping or threading.Event()

    def run() -> None:
        while not stopping.wait(pause_s):
            step()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(60)
    assert not thread.is_alive()
