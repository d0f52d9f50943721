"""The monotonic clock and the wall clock of this host, in milliseconds."""

import time

# A clock that counts the time a machine sleeps, or its waking up would look like a step of the server's clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_ms() -> float:
    """Time that only passes, in ms."""
    return time.clock_gettime_ns(_CLOCK) / 1e6


def wall_ms() -> float:
    """This host's idea of the time, in ms since 1970: a witness, never more."""
    return time.time_ns() / 1e6
