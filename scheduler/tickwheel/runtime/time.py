"""The monotonic clock and the wall clock of this host, in milliseconds."""

import time

# A clock that also counts while the machine is suspended. With another clock, the server's clock would seem to jump
# ahead during a suspend.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_ms() -> float:
    """Return the monotonic time in ms, including time in suspend."""
    return time.clock_gettime_ns(_CLOCK) / 1e6


def wall_ms() -> float:
    """Return this host's time in ms since 1970. Use it only to judge the server's clock."""
    return time.time_ns() / 1e6
