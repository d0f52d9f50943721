"""A host whose resources for threads are used up, as this program sees it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Let each start of a thread fail: no address space is large enough for its stack."""
    normal = threading.stack_size(1 << 60)
    try:
        yield
    finally:
        threading.stack_size(normal)
