"""The state that the model keeps for a message: the arguments of its enqueue and its current state."""

from dataclasses import dataclass, field
from typing import Any

INVISIBLE, PENDING, RUNNING = "invisible", "pending", "running"
COMPLETED, CANCELLED, ERRORED = "completed", "cancelled", "errored"
STATES = (INVISIBLE, PENDING, RUNNING, COMPLETED, CANCELLED, ERRORED)
FINISHED = (COMPLETED, CANCELLED, ERRORED)

Key = tuple[str, str | None]
"""Id and exclusive value (None in plain queues)."""


@dataclass(frozen=True)
class EnqueueArguments:
    """The arguments of an enqueue. Two objects are equal if the messages have the same content."""

    id: str
    payload: bytes = field(default=b"", repr=False)
    delay: int = 0
    due: int | None = None
    deadline: int | None = None
    deadline_in: int | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    lease: int | None = None
    max_attempts: int | None = None
    trace: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """The pairs of the trace context: stored with the message, but not indexed, and not part of its content."""


@dataclass
class Settings:
    """The configuration of a queue."""

    exclusive_key: str | None = None
    indexed: tuple[str, ...] | None = None
    lease: int = 30_000
    max_attempts: int = 5
    retention: int = 600_000
    errored_retention: int = 7 * 86_400_000
    enqueue_blocked: bool = False
    dequeue_blocked: bool = False


@dataclass
class Event:
    """One transition, as the history must record it."""

    version: int
    before: str | None
    after: str | None
    time: int
    until: int
    attempt: int
    lateness: int | None = None
    """Set when the message becomes Pending at its time, or Running."""
    due: int | None = None
    deadline: int | None = None
    metadata: dict[str, str] | None = None
    """An event has these three fields if the transition sets them."""
    by: str = field(default="", compare=False)
    """The script that executed the transition. The history does not contain it."""


@dataclass
class Entry:
    """A message."""

    key: Key
    shard: int
    order: int
    """The number of messages enqueued on the shard up to this message."""
    arguments: EnqueueArguments
    due: int
    deadline: int | None
    """None means `due`."""
    state: str
    until: int
    """The end of the delay, the back-off, the lease or the retention."""
    version: int = 1
    attempts: int = 0
    payload: bytes = field(default=b"", repr=False)
    metadata: dict[str, str] = field(default_factory=dict)
    token: bytes | None = None
    worker: str = ""
    error: str = ""
    result: str | None = None
    held: bool = False
    """Whether the message was cancelled while it was Running, and its exclusive value is not yet free."""
    history: list[Event] = field(default_factory=list)

    @property
    def value(self) -> str | None:
        """The exclusive value."""
        return self.key[1]

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED

    @property
    def urgency(self) -> tuple[int, bool, int]:
        """Earliest deadline first; among equals, first messages with a deadline of their own, then by enqueue."""
        return (self.due if self.deadline is None else self.deadline, self.deadline is None, self.order)

    def times(self) -> dict[str, Any]:
        """Return the fields of an event that sets due time, deadline and metadata."""
        deadline = self.due if self.deadline is None else self.deadline
        return {"due": self.due, "deadline": deadline, "metadata": dict(self.metadata)}

    def becomes(self, by: str, state: str | None, now: int, **fields: Any) -> None:
        """Record one transition by a script, with additional fields of its event."""
        self.version += 1
        self.history.append(Event(self.version, self.state, state, now, self.until, self.attempts, **fields, by=by))
        self.state = state or "gone"
