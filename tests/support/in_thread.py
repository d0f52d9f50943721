"""A program of the product in a thread of the test's own process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Program(Protocol):
    def run(self) -> None: ...

    def stop(self) -> None: ...


@contextmanager
def in_thread(program: Program, stop_s: float) -> Iterator[None]:
    """Run a program until the end of the block. Then it must end within ``stop_s`` seconds."""
    thread = threading.Thread(target=program.run)
    thread.start()
    try:
        yield
    finally:
        program.stop()
        thread.join(stop_s)
    assert not thread.is_alive()
