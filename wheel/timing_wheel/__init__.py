"""A hierarchical timing wheel: keeps very many timers, and returns the items that are due.

The wheel does no I/O, starts no thread and has no clock: the caller passes the current time. An item is never returned
early. It is returned at its time or, if the time lies between two ticks, at the later tick. Locking between threads is
left to the caller.

wheel.py  `TimingWheel`: adds and cancels timers, and advances the time
level.py  one level of the wheel: slots of one width
timer.py  `Timer`: the handle of one timer, a plain int
"""

from timing_wheel.timer import Timer
from timing_wheel.wheel import TimingWheel

__all__ = ["Timer", "TimingWheel"]
