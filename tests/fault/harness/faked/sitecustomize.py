"""Wrong clocks for Python processes, by libfaketime or by this module. FAKED_RATE names a file with a rate."""

import os
import select
import time
from collections.abc import Callable
from typing import SupportsIndex

_RATE = os.environ.get("FAKED_RATE")
_perf_counter_ns = time.perf_counter_ns


def _sleep(seconds: SupportsIndex | float, /) -> None:
    """Sleep without the monotonic clock, because under libfaketime such a sleep fails immediately (EINVAL)."""
    select.select([], [], [], float(seconds))


class _Rate:
    """The rate in the file, read at most ten times a second."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._read_ns, self._rate = 0, 1.0

    def __call__(self) -> float:
        if _perf_counter_ns() > self._read_ns + 100_000_000:
            self._read_ns = _perf_counter_ns()
            with open(self._file) as file:
                self._rate = float(file.read())
        return self._rate


class _Drifting:
    """A clock in ns that runs at a rate relative to another clock. A new rate applies from its change on."""

    def __init__(self, clock: Callable[[], int], rate: _Rate) -> None:
        self._clock, self._rate = clock, rate
        now = clock()
        # One tuple, so that other threads always read consistent values.
        self._since = now, now, 1.0

    def __call__(self) -> int:
        now, rate = self._clock(), self._rate()
        since, reading_then, rate_then = self._since
        reading = reading_then + int((now - since) * rate_then)
        if rate != rate_then:
            self._since = now, reading, rate
        return reading


def _drift(file: str) -> None:
    rate, gettime_ns = _Rate(file), time.clock_gettime_ns
    wall, monotonic = _Drifting(time.time_ns, rate), _Drifting(time.monotonic_ns, rate)
    others = {clock: _Drifting(lambda clock=clock: gettime_ns(clock), rate) for clock in _CLOCKS}  # type: ignore[misc]
    time.time_ns, time.time = wall, lambda: wall() / 1e9
    time.monotonic_ns, time.monotonic = monotonic, lambda: monotonic() / 1e9
    time.clock_gettime_ns = lambda clock: others[clock]()


_CLOCKS = [time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW, time.CLOCK_BOOTTIME]

if _RATE:
    _drift(_RATE)
else:
    time.sleep = _sleep
