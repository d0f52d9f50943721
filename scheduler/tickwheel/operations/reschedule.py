"""Reschedule: a new due time or deadline for a message that is Invisible or Pending."""

from datetime import datetime, timedelta
from struct import Struct

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.model.results import Change
from tickwheel.model.validation import Duration
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.locate import call_by_id
from tickwheel.operations.sessions import Sessions
from tickwheel.plan import Plan
from tickwheel.storage.record import BIAS

_RESCHEDULE = Struct(">IHI")
_NEW_TIMES = Struct(">BHIQ")
_ABSOLUTE, _RELATIVE_DEADLINE, _DUE, _DEADLINE = 1, 2, 4, 8


def reschedule(
    context: NamespaceContext,
    queue: str,
    id_: str,
    exclusive_value: str | None,
    delay: Duration | None,
    due: datetime | None,
    deadline: datetime | timedelta | None,
    sessions: Sessions | None = None,
) -> Plan[Change]:
    """Set a new due time, a new deadline, or both. The due time is ``delay`` from now, or ``due``.

    Return the change. Raises InvalidArgument, MessageNotFound, or InvalidTransition if the message is neither Invisible
    nor Pending.
    """
    kind = when = deadline_ms = 0
    check_new_times(delay, due, deadline)
    if delay is not None:
        kind, when = _DUE, validation.duration_ms("delay", delay, 0, limits.DELAY_MS_MAX)
    elif due is not None:
        kind, when = _DUE | _ABSOLUTE, validation.due_ms(due)
    if deadline is not None:
        deadline_ms, relative = validation.deadline_ms(deadline)
        kind |= _DEADLINE | (_RELATIVE_DEADLINE if relative else 0)
    limit = _RESCHEDULE.pack(context.clock_guard_ms, *divmod(limits.DELAY_MS_MAX, 2**32))
    times = _NEW_TIMES.pack(kind, *divmod(when, 2**32), deadline_ms + BIAS)
    return (yield from call_by_id(context, "reschedule", queue, id_, exclusive_value, sessions, [limit], times))


def check_new_times(delay: object, due: object, deadline: object) -> None:
    """Raise InvalidArgument if no time is given, or if both a delay and a due time are given."""
    if delay is not None and due is not None:
        raise InvalidArgument("give a delay or a due time, not both")
    if delay is None and due is None and deadline is None:
        raise InvalidArgument("give a new delay or due time, a new deadline, or both")
