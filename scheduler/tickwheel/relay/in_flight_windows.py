"""The entries of an outbox in flight to the broker: windows of entries, in order, and the range that may be trimmed.

No entry is lost, because the outbox is trimmed only up to the first entry with a transition that is not acknowledged.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tickwheel.driver.batch_size import AdaptiveBatchSize
from tickwheel.storage.stream_id import id_after

# Bytes of events in one window, which is read in one piece, and the maximum number of windows in flight. Their product
# limits the events that are sent twice after a failure.
WINDOW_BYTES: Final = 256 * 1024
WINDOWS: Final = 4


@dataclass(frozen=True, slots=True)
class TrimRange:
    """The first entries of the outbox, of which the broker has all transitions: the arguments of `lua/trim_outbox.lua`.

    ``first`` is the id of the first entry to remove, ``rest`` the lowest id to keep. ``size`` is the number of bytes.
    """

    first: bytes
    rest: bytes
    size: int
    transitions: int


class Window:
    """Entries that were read together. Only the producer's thread calls `on_delivery`."""

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
        """Record that the broker has acknowledged one transition of the window, or why it will not."""
        if error is None:
            self._left -= 1
        else:
            self.error = error
        if self._left == 0 or error is not None:
            self._wake()


class InFlightWindows:
    """The windows in flight, the oldest first."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._windows: deque[Window] = deque()
        self._batch_size = AdaptiveBatchSize(WINDOW_BYTES)

    @property
    def is_full(self) -> bool:
        return len(self._windows) >= WINDOWS

    @property
    def count(self) -> int:
        """The number of entries to read next."""
        return self._batch_size.count

    def add(self, entries: Sequence[tuple[bytes, bytes]], transitions: int) -> Window:
        """Add the entries that follow the last window, with the number of their transitions. Return the new window."""
        size = sum(len(entry) for _, entry in entries)
        self._batch_size.observe(len(entries), size)
        window = Window(TrimRange(entries[0][0], id_after(entries[-1][0]), size, transitions), self._wake)
        self._windows.append(window)
        return window

    @property
    def has_acknowledged(self) -> bool:
        """Whether the oldest window is acknowledged, so the outbox can be trimmed."""
        return bool(self._windows) and self._windows[0].is_acknowledged

    def take_acknowledged(self) -> TrimRange | None:
        """Remove all windows before the first unacknowledged one. Return them as one range to trim, if any."""
        done: list[TrimRange] = []
        while self.has_acknowledged:
            done.append(self._windows.popleft().trim_range)
        if not done:
            return None
        return TrimRange(done[0].first, done[-1].rest, sum(c.size for c in done), sum(c.transitions for c in done))

    def first_error(self) -> Any:
        """Return the error of the oldest window with a rejected transition; None if none was rejected."""
        return next((window.error for window in self._windows if window.error is not None), None)
