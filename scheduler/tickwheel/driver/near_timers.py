"""Keeps the timers of one kind in memory until they are due. These timers are levels 0 and 1 of the wheel.

The wheel in memory has one entry for each tick (1 ms) that has timers. The timers of a tick are packed into one
bytearray, which takes 37 bytes for each timer. A list of bytes objects would take 140 bytes for each timer.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from tickwheel.storage.timer import Kind, iter_timers
from timing_wheel import TimingWheel

# The due timers of a queue that stay unpacked, and those of a chunk that is unpacked later: a tick may hold a hundred
# thousand timers.
_UNPACKED_MAX: Final = 20
_CHUNK: Final = 200
# The due timers that one call assigns to their queues. Each further tick counts as this number of timers. All of them
# take some milliseconds.
_COLLECTED_MAX: Final = 5_000
_TICK: Final = 4


class _DueTimers:
    """The due timers of one queue, in their order. Only the first ones are unpacked."""

    __slots__ = ("_last_size", "_packed", "_unpacked")

    def __init__(self) -> None:
        self._unpacked: deque[bytes] = deque()
        # Chunks of up to `_CHUNK` timers, and the number of timers in the last chunk. An empty list takes less memory
        # than an empty deque.
        self._packed: list[bytearray] = []
        self._last_size = 0

    def __bool__(self) -> bool:
        return bool(self._unpacked or self._packed)

    def append(self, timer: bytes) -> None:
        if not self._packed and len(self._unpacked) < _UNPACKED_MAX:
            self._unpacked.append(timer)
            return
        if not self._packed or self._last_size == _CHUNK:
            self._packed.append(bytearray())
            self._last_size = 0
        self._packed[-1] += timer
        self._last_size += 1

    def take(self, count: int) -> list[bytes]:
        """Remove and return the first timers, at most ``count``."""
        while len(self._unpacked) < count and self._packed:
            self._unpacked.extend(timer for _, _, _, timer in iter_timers(bytes(self._packed.pop(0))))
        return [self._unpacked.popleft() for _ in range(min(count, len(self._unpacked)))]

    def put_back(self, timers: list[bytes]) -> None:
        self._unpacked.extendleft(reversed(timers))


class NearTimers:
    """The timers that are not due yet, by tick, and the due timers, by queue."""

    def __init__(self, now_ms: int) -> None:
        self._now = now_ms
        self._wheel: TimingWheel[int] = TimingWheel(now_ms)
        self._ticks: dict[int, bytearray] = {}
        self._due: Iterator[tuple[int, int, Kind, bytes]] = iter(())
        self._ready: dict[int, _DueTimers] = {}
        # Whether no more timers are due at `_now`. This saves time, because the driver calls `take` several times a
        # tick.
        self._drained = False
        self.count = 0

    def add(self, at_ms: int, timer: bytes) -> None:
        """Keep a timer until ``at_ms``: its own time, or a later time if the timer was postponed."""
        if at_ms <= self._now:
            self._drained = False
        packed = self._ticks.get(at_ms)
        if packed is None:
            self._ticks[at_ms] = bytearray(timer)
            self._wheel.add(at_ms, at_ms)
        else:
            packed += timer
        self.count += 1

    def take(self, now_ms: int, limit_for: Callable[[int], int]) -> tuple[int, list[bytes]] | None:
        """Remove due timers of one queue, at most ``limit_for(queue number)``. Queues take turns. A queue with many due
        timers delays those of others until each timer is assigned to its queue, and then by one batch a turn.

        Return the number of the queue and the timers, or None if no timer is due. The caller must pass each timer that
        stays open (`loaded_timers.py`) to `add` or `put_back`.
        """
        self._collect_due(now_ms)
        if not self._ready:
            return None
        queue_number = next(iter(self._ready))
        waiting = self._ready.pop(queue_number)
        taken = waiting.take(limit_for(queue_number))
        if waiting:
            self._ready[queue_number] = waiting
        self.count -= len(taken)
        return queue_number, taken

    def put_back(self, queue_number: int, timers: list[bytes]) -> None:
        """Put back timers that were taken and not handled. They become the first of their queue."""
        if not timers:
            return
        self._queue(queue_number).put_back(timers)
        self.count += len(timers)

    def next_expiry(self) -> int | None:
        """Return the earliest tick with timers; None if there are none. If due timers wait, the tick is past."""
        return self._now if self._ready else self._wheel.next_expiry()

    def _collect_due(self, now_ms: int) -> None:
        if self._drained and now_ms == self._now:
            return
        if now_ms < self._now:
            self._rewind(now_ms)
        self._now = now_ms
        left = _COLLECTED_MAX
        while True:
            for _, queue_number, _, timer in self._due:
                self._queue(queue_number).append(timer)
                left -= 1
                if left <= 0:
                    return
            left -= _TICK
            reached = self._wheel.advance(now_ms, limit=1)
            self._drained = not reached
            if not reached:
                return
            self._due = iter_timers(bytes(self._ticks.pop(reached[0])))

    def _queue(self, queue_number: int) -> _DueTimers:
        due = self._ready.get(queue_number)
        if due is None:
            due = self._ready[queue_number] = _DueTimers()
        return due

    def _rewind(self, now_ms: int) -> None:
        """Move to an earlier time. A wheel cannot go back, so a new wheel takes over the timers that are not due."""
        self._wheel = TimingWheel(now_ms)
        for tick in sorted(self._ticks):
            self._wheel.add(tick, tick)
