"""The numbers of deleted queues that the calls of this process may give to new queues. No I/O.

All numbers were given. One search (`queue_numbers.py`) finds many placeholders, and each call takes another one. So a
hundred calls at once need one search, and no two of them want the same number.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FreeNumber:
    """The number of a deleted queue, by the name of its placeholder."""

    placeholder: str
    last_ids: Mapping[int, bytes]
    """The id of the last event of the number, on each shard that has one."""


class FreeNumbers:
    """The numbers that the last search has found, and that no call has taken since then. Thread-safe.

    Another process may have given a number meanwhile.
    """

    def __init__(self) -> None:
        self._found: deque[FreeNumber] = deque()
        self._searching = threading.Lock()

    def take(self) -> FreeNumber | None:
        """Remove and return a number, or return None if a search is necessary."""
        try:
            return self._found.popleft()
        except IndexError:
            return None

    def begin_search(self) -> bool:
        """Begin a search, and return True; or return False if another call searches."""
        return self._searching.acquire(blocking=False)

    def end_search(self, numbers: Iterable[FreeNumber] = ()) -> None:
        """End the search, also if it has failed."""
        self._found.extend(numbers)
        self._searching.release()
