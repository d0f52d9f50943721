"""The options of an election by lease."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self

from tickwheel.election.lease_row import EVENT_PROCESS, LEASE_MS_MAX
from tickwheel.errors import InvalidArgument

SESSION_TIMEOUT: Final = timedelta(seconds=4)
SESSION_TIMEOUTS: Final = (timedelta(seconds=1), timedelta(milliseconds=LEASE_MS_MAX))
# The value of `--election` that chooses this kind.
LEASE: Final = "lease"


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """How a process takes part in an election by lease.

    If a process is killed or cut off, others take over its shards after ``session_timeout_s``. ``rank`` is
    EVENT_PROCESS or LAST_RESORT. With ``waits_for_unclaimed``, a process of the last resort leaves shards that nobody
    has claimed yet to event processes for a time.
    """

    session_timeout_s: float = SESSION_TIMEOUT.total_seconds()
    rank: int = EVENT_PROCESS
    waits_for_unclaimed: bool = True

    @classmethod
    def checked(cls, session_timeout: timedelta = SESSION_TIMEOUT, rank: int = EVENT_PROCESS) -> Self:
        """Check the options. Raises InvalidArgument."""
        check_session_timeout(session_timeout)
        return cls(session_timeout.total_seconds(), rank)


def check_session_timeout(session_timeout: timedelta) -> None:
    """Raise InvalidArgument if the time is too short or too long for an election."""
    minimum, maximum = SESSION_TIMEOUTS
    if not minimum <= session_timeout <= maximum:
        raise InvalidArgument(
            f"a session time-out must be from {minimum.total_seconds():g} to {maximum.total_seconds():g} s, not"
            f" {session_timeout.total_seconds():g} s"
        )
