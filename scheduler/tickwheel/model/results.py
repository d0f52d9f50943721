"""What operations answer their callers with: values of the public interface."""

from dataclasses import dataclass
from datetime import datetime

from tickwheel.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a message. ``changed`` is False where the call had been done before."""

    id: str
    state: str
    version: int
    at: datetime
    """The time that goes with the state: due, leased until, kept until.

    Of a message that was cancelled while it ran and holds its exclusive value: when its lease ends, which frees the
    value unless its worker calls before. It is kept for the queue's retention from then on.
    """
    changed: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a message stands. ``reason`` says it in a sentence; the fields are for programs.

    Reasons: ``invisible``, ``behind_value``, ``behind_others``, ``next``, ``blocked``, ``running``, ``completed``,
    ``cancelled``, ``errored``.
    """

    id: str
    state: str
    code: str
    reason: str
    until: datetime | None = None
    """When that changes by itself: due, end of the lease that holds it up (of a message that was cancelled while it
    ran: of its own, which holds its exclusive value), end of retention. Past, where no event process has seen to it."""
    ahead: int | None = None
    """Deliverable messages that are more urgent; on other shards those with an earlier deadline."""
    ahead_in_value: int | None = None
    """Messages of its exclusive value that go first, apart from the one that is running."""
    holder: str | None = None
    """The running message of its exclusive value."""
    worker: str | None = None
    """Who has the lease, its own or the holder's, as named at dequeue."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late messages became deliverable, and how many deadlines were missed, since the queue was created.

    The buckets count by powers of two: ``{1: 5}`` are five of less than 1 ms, ``{8: 2}`` two of 4 to under 8 ms.
    """

    promoted: dict[int, int]
    """(dequeueable - due) in ms, of messages that waited on the wheel: bucket's upper end -> how many."""
    missed: dict[int, int]
    """(dequeued - deadline) in ms, of those dequeued after the deadline they were given: upper end -> how many."""
    deadlines: int
    """How many messages with a deadline of their own were dequeued."""

    def percentile(self, share: float) -> int:
        """The upper end, in ms, of the bucket up to which ``share`` (0 to 1) of the promoted lie; 0 for none."""
        if not 0 <= share <= 1:
            raise InvalidArgument(f"share must be from 0 to 1, as 0.99 for the 99th percentile, not {share!r}")
        wanted = share * sum(self.promoted.values())
        passed = 0
        for end, count in sorted(self.promoted.items()):
            passed += count
            if passed >= wanted > 0:
                return end
        return 0


@dataclass(frozen=True, slots=True)
class ForecastMinute:
    """How many messages fall due in the minute that starts at ``start``."""

    start: datetime
    due: int
