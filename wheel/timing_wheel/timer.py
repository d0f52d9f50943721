"""What `add` answers: a name for one timer, by which it can be cancelled.

A timer is one plain int, its expiry above and a running number below. So timers of a
wheel sort in firing order, and the garbage collector has nothing to follow: with an object per timer, even one of
nothing but `__slots__`, a million timers cost 1.4 times as much each as ten thousand.
"""

from itertools import count
from typing import NewType

Timer = NewType("Timer", int)

# The hash of an int is its remainder by 2**61 - 1, so expiry and number must not cancel out there.
# 91 = 61 + 30 puts the expiry 30 bits above the number in the hash as well: two timers share one
# only if 2**30 additions or 2**31 units of time lie between them.
TIMERS_PER_UNIT = 1 << 91

# One count for all wheels, so that no wheel takes another's timer for its own.
_next_number = count().__next__


def new_timer(expiry: int) -> Timer:
    """A timer that fires at `expiry`, in the wheel's own count; no two in a process are equal."""
    return Timer(expiry * TIMERS_PER_UNIT + _next_number())


def expiry_of(timer: Timer) -> int:
    """When a timer fires, in its wheel's own count."""
    return timer // TIMERS_PER_UNIT
