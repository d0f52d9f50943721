"""Results of operations: values of the public interface."""

from dataclasses import dataclass
from datetime import datetime

from tickwheel.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Change:
    """The state of a message after a call. ``changed`` is False if an earlier call had made the same change."""

    id: str
    state: str
    version: int
    at: datetime
    """The time that belongs to the state: due time, end of the lease, or end of retention. It is often in the future.

    If the message was cancelled while it ran and still holds its exclusive value, ``at`` is the end of its lease. The
    exclusive value becomes free, and the retention starts, at this time, or earlier if the worker settles the message.
    """
    changed: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a message is not running, or that it is running.

    ``reason`` is a sentence for people; programs read the other fields.

    ``code`` is the state ``invisible``, ``running``, ``completed``, ``cancelled`` or ``errored``; for a Pending message
    ``blocked`` (the queue is blocked for dequeue), ``behind_value`` (a message of the same exclusive value comes
    first), ``behind_others`` (more urgent messages come first) or ``next``.
    """

    id: str
    state: str
    code: str
    reason: str
    until: datetime | None = None
    """The time at which the situation changes without a call: the due time, the end of the lease that the message waits
    for, or the end of retention. If the message was cancelled while it ran and still holds its exclusive value,
    ``until`` is the end of its own lease. The time is in the past if no event process has processed the change yet."""
    ahead: int | None = None
    """Number of deliverable messages that come first: those before it in its own shard, and those with an earlier
    deadline in other shards."""
    ahead_in_value: int | None = None
    """Number of messages of the same exclusive value that go first, not counting the running message."""
    holder: str | None = None
    """Id of the message that holds the exclusive value."""
    worker: str | None = None
    """The name, passed to dequeue, of the worker that holds the lease of this message or of the message ``holder``."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """Histograms of lateness and of missed deadlines since the queue was created.

    A bucket is named by its upper end, a power of two: ``{1: 5}`` means five messages with less than 1 ms, and
    ``{8: 2}`` means two messages with 4 ms or more, but less than 8 ms.
    """

    promoted: dict[int, int]
    """Time in ms from the due time until the message became deliverable, for messages that waited on the wheel.

    Maps the upper end of each bucket to the number of messages."""
    missed: dict[int, int]
    """Time in ms from the deadline to the dequeue, for messages that were dequeued after an explicit deadline.

    Maps the upper end of each bucket to the number of messages."""
    deadlines: int
    """Number of messages with an explicit deadline that were dequeued."""

    def percentile(self, share: float) -> int:
        """Return an estimate of the percentile ``share`` of `promoted`, in ms; 0 without messages.

        The times of the messages are not stored, only their numbers by bucket. So the estimate is interpolated within
        the bucket that contains the percentile, evenly on a logarithmic scale. Below 2 ms the estimate is exact, in
        whole ms. Above, it is more than half of the percentile, and less than twice the percentile. Raises
        InvalidArgument if ``share`` is not from 0 to 1.
        """
        if not 0 <= share <= 1:
            raise InvalidArgument(f"share must be from 0 to 1, such as 0.99 for the 99th percentile, not {share!r}")
        wanted = share * sum(self.promoted.values())
        passed = 0
        for end, count in sorted(self.promoted.items()):
            if count > 0 and passed + count >= wanted:
                return _interpolate(end, (wanted - passed) / count)
            passed += count
        return 0


def _interpolate(end: int, part: float) -> int:
    """Return the value below which this part of a bucket's values are. The values are whole numbers."""
    lowest, highest = end // 2, end - 1
    # The first two buckets have one value each, 0 and 1.
    return highest if end <= 2 else round(lowest * (highest / lowest) ** part)


@dataclass(frozen=True, slots=True)
class ForecastMinute:
    """The number of messages that are due in the minute that starts at ``start``."""

    start: datetime
    due: int
