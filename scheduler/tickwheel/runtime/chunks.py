"""Lists in chunks of a bounded size, as with `itertools.batched` of Python 3.12."""

from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def iter_chunks(items: list[T], size: int) -> Iterator[list[T]]:
    """Cut the list into consecutive chunks of ``size`` items; the last one may be shorter."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
