"""A hierarchical timing wheel: keep a great many timers, hand out what is due.

No I/O, no threads, no clock of its own: the caller says what time it is. Never early: an item is
handed out at its time or, where that lies between two ticks, at the tick after it.
"""

from timing_wheel.timer import Timer
from timing_wheel.wheel import TimingWheel

__all__ = ["Timer", "TimingWheel"]
