"""What of an outbox is on its way to the broker: windows of entries, in order, and how many of them may be cut off.

Nothing is lost by this rule: the outbox is cut only up to the first entry with a transition that is not acknowledged.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tickwheel.driver.batch_size import AdaptiveBatchSize
from tickwheel.storage.stream_id import id_after

# Bytes of events that are read at a time, and how many times as much may be on its way: what is sent twice at most.
WINDOW_BYTES: Final = 256 * 1024
WINDOWS: Final = 4


@dataclass(frozen=True, slots=True)
class TrimRange:
    """A beginning of the outbox whose every transition the broker has: what `lua/trim_outbox.lua` is told."""

    first: bytes
    rest: bytes
    size: int
    transitions: int


class Window:
    """Entries that were read together. ``delivered`` is called from the producer's thread alone."""

    __slots__ = ("_left", "_wake", "error", "trim_range")

    def __init__(self, trim_range: TrimRange, wake: Callable[[], None]) -> None:
        self.trim_range = trim_range
        self.error: Any = None
        self._left = trim_range.transitions
        self._wake = wake

    @property
    def is_acknowledged(self) -> bool:
        return self._left == 0

    def on_delivery(self, error: Any, _: Any) -> None:
        """The broker has acknowledged one of its transitions, or never will."""
        if error is None:
            self._left -= 1
        else:
            self.error = error
        if self._left == 0 or error is not None:
            self._wake()


class InFlightWindows:
    """The windows on their way, the oldest first."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._windows: deque[Window] = deque()
        self._batch_size = AdaptiveBatchSize(WINDOW_BYTES)

    @property
    def is_full(self) -> bool:
        return len(self._windows) >= WINDOWS

    @property
    def count(self) -> int:
        """How many entries to read next."""
        return self._batch_size.count

    def add(self, entries: Sequence[tuple[bytes, bytes]], transitions: int) -> Window:
        """Entries that follow those before, and how many transitions they hold."""
        size = sum(len(entry) for _, entry in entries)
        self._batch_size.observe(len(entries), size)
        window = Window(TrimRange(entries[0][0], id_after(entries[-1][0]), size, transitions), self._wake)
        self._windows.append(window)
        return window

    @property
    def has_acknowledged(self) -> bool:
        """Whether there is something to cut."""
        return bool(self._windows) and self._windows[0].is_acknowledged

    def take_acknowledged(self) -> TrimRange | None:
        """All windows up to the first that is not acknowledged, as one cut."""
        done: list[TrimRange] = []
        while self.has_acknowledged:
            done.append(self._windows.popleft().trim_range)
        if not done:
            return None
        return TrimRange(done[0].first, done[-1].rest, sum(c.size for c in done), sum(c.transitions for c in done))

    def first_error(self) -> Any:
        """Why the broker will not take one of them; None where it may take all."""
        return next((window.error for window in self._windows if window.error is not None), None)
