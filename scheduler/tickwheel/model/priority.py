"""Priorities, and the deadlines that they mean. A message with a priority has an earlier deadline than its due time."""

from datetime import timedelta
from typing import Final

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation

# One step of priority moves the deadline by one year. So a message of a higher priority goes before all messages of a
# lower one that are due within a year of it.
STEP: Final = timedelta(days=365)
_STEP_MS: Final = STEP // timedelta(milliseconds=1)


def lead(priority: int) -> timedelta:
    """Return the time from the deadline to the due time of a message with this priority."""
    return priority * STEP


def priority_deadline_ms(priority: object, deadline: object, due_ms: int) -> int | None:
    """Return the deadline in ms of a message with a priority from 0 to 9, where 9 is the most urgent.

    ``due_ms`` is the due time or the delay, and the deadline counts from the same time. Returns None for priority 0,
    because the default deadline is the due time. Raises InvalidArgument, also if the message has a ``deadline``.
    """
    number = validation.integer("priority", priority, 0, limits.PRIORITY_MAX)
    if deadline is not None:
        raise InvalidArgument("give a deadline or a priority, not both: a priority sets the deadline")
    return due_ms - number * _STEP_MS if number else None
