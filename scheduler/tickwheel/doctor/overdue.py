"""Messages that are overdue: Invisible messages past their due times, and Running ones past the ends of their leases.

The audit collects them. Under load, a driver promotes messages late, too, so they are a finding only if the wheel of
their shard has made no progress (`health.check_overdue`).
"""

from dataclasses import dataclass

from tickwheel.doctor.expected_entries import ExpectedEntries
from tickwheel.storage.record import State

# A driver promotes a message within milliseconds, unless it has a backlog.
OVERDUE_MS = 5_000


@dataclass(slots=True)
class OverdueInShard:
    """The number of overdue messages of one shard, and one of them. ``now_ms`` is the time by the shard's server."""

    now_ms: int
    count: int = 0
    example: str = ""

    def add(self, message: ExpectedEntries) -> None:
        """Count the message if it is overdue."""
        state, late_ms = message.record.state, self.now_ms - message.record.until_ms
        if state not in (State.INVISIBLE, State.RUNNING) or late_ms <= OVERDUE_MS:
            return
        self.count += 1
        if not self.example:
            late = "due" if state is State.INVISIBLE else "at the end of its lease"
            self.example = f"{message.label}, which was {late} {late_ms / 1000:,.0f} s ago"


# By shard. Only shards with overdue messages.
OverdueMessages = dict[int, OverdueInShard]
