"""Rejected and failed calls that repeat. Otherwise, a caller could fill the log with the lines of such calls.

`LogThrottle` is for texts of the program itself: it keeps no numbers, and many callers could empty its memory.
"""

import asyncio
import logging
from typing import Final, NamedTuple

from tickwheel.runtime.log_fields import log_fields
from tickwheel.runtime.log_throttle import PAUSE_S

# The maximum number of kinds of calls in a pause. Further callers count as one caller.
_KINDS_MAX: Final = 1_000
_log = logging.getLogger("tickwheel.service")


class CallKind(NamedTuple):
    """The calls that count as equal. ``level`` is the level of their log lines."""

    level: int
    method: str
    code: str
    caller: str


class RepeatedCalls:
    """Counts the equal calls after a call that was logged. After each ``PAUSE_S`` seconds, one line reports their
    number, until a pause had no such call.
    """

    def __init__(self) -> None:
        self._counts: dict[CallKind, int] = {}

    def is_repeated(self, kind: CallKind) -> bool:
        """Return whether an equal call was reported in this pause. The call is then counted, and needs no line."""
        if kind not in self._counts and len(self._counts) >= _KINDS_MAX:
            kind = kind._replace(caller="other callers")
        if kind in self._counts:
            self._counts[kind] += 1
            return True
        self._begin_pause(kind)
        return False

    def close(self) -> None:
        """Report all numbers, because the service stops."""
        for kind, count in self._counts.items():
            _report(kind, count)
        self._counts.clear()

    def _begin_pause(self, kind: CallKind) -> None:
        self._counts[kind] = 0
        asyncio.get_running_loop().call_later(PAUSE_S, self._end_pause, kind)

    def _end_pause(self, kind: CallKind) -> None:
        if count := self._counts.pop(kind, 0):
            _report(kind, count)
            self._begin_pause(kind)


def _report(kind: CallKind, count: int) -> None:
    if count:
        _log.log(
            kind.level,
            "%s of %s: %s for %d more calls, which were not logged",
            kind.method,
            kind.caller,
            kind.code,
            count,
            extra=log_fields("repeated calls", method=kind.method, code=kind.code, caller=kind.caller, count=count),
        )
