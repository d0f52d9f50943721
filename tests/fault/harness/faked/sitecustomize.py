"""For Python processes whose clocks are wrong, by libfaketime or by this: FAKED_RATE names a file with a rate."""

import os
import select
import time
from collections.abc import Callable
from typing import SupportsIndex

_RATE = os.environ.get("FAKED_RATE")
_perf_counter_ns = time.perf_counter_ns


def _sleep(seconds: SupportsIndex | float, /) -> None:
    """Under libfaketime a sleep up to a moment of the monotonic clock fails at once (EINVAL)."""
    select.select([], [], [], float(seconds))


class _Rate:
    """What the file says, looked at once in a tenth of a second."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._looked, self._rate = 0, 1.0

    def __call__(self) -> float:
        if _perf_counter_ns() > self._looked + 100_000_000:
            self._looked = _perf_counter_ns()
            with open(self._file) as file:
                self._rate = float(file.read())
        return self._rate


class _Drifting:
    """A clock, in ns, that goes so many times as fast as another from the moment that the rate is another."""

    def __init__(self, clock: Callable[[], int], rate: _Rate) -> None:
        self._clock, self._rate = clock, rate
        now = clock()
        # Of one moment, so replaced as one: threads look, too.
        self._since = now, now, 1.0

    def __call__(self) -> int:
        now, rate = self._clock(), self._rate()
        began, told, before = self._since
        shown = told + int((now - began) * before)
        if rate != before:
            self._since = now, shown, rate
        return shown


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
