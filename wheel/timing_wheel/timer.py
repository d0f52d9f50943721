"""The handle of one timer, which `add` returns and `cancel` takes.

A timer is a plain int: the expiry in the high bits, a sequence number in the low bits. So the timers of a wheel sort in
firing order, and the garbage collector does not track them. With an object for each timer, even one with `__slots__`
only, a timer among a million would cost 1.4 times as much as a timer among ten thousand.
"""

from itertools import count
from typing import NewType

Timer = NewType("Timer", int)

# The hash of an int is its remainder modulo 2**61 - 1, so different timers could have the same hash. As 2**91 has the
# remainder 2**30, the hash of a timer is the remainder of expiry * 2**30 + number. So two timers have the same hash
# only if about 2**30 additions or 2**31 units of time lie between them.
TIMERS_PER_UNIT = 1 << 91

# One sequence for all wheels, so that a wheel can distinguish its own timers from those of other wheels.
_next_number = count().__next__


def new_timer(expiry: int) -> Timer:
    """Return a timer that fires at `expiry`, counted from the wheel's origin. All timers of a process are distinct."""
    return Timer(expiry * TIMERS_PER_UNIT + _next_number())


def expiry_of(timer: Timer) -> int:
    """Return the time at which a timer fires, counted from its wheel's origin."""
    return timer // TIMERS_PER_UNIT
