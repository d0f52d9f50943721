"""A call of a Celery task, as its message says it, and as the Tickwheel message that asks for the same.

The body travels as the very JSON text that Celery has, so what a task gets is what it would have got there. Nothing in
here needs Celery.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.model.message import NewMessage

# What Celery's headers say that the message says itself, or that is for people.
_OMITTED_HEADERS: Final = frozenset({"task", "id", "eta", "lang", "argsrepr", "kwargsrepr"})
# A priority is a class of its own: a step of a year in the deadline.
_PRIORITY = timedelta(days=365)
_MAX_ETA_AHEAD = timedelta(milliseconds=limits.DELAY_MS_MAX) - timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CeleryMessage:
    """``headers`` are those of Celery's protocol 2; ``body`` is JSON: arguments, keyword arguments, what follows."""

    headers: Mapping[str, Any]
    body: str
    reply_to: str = ""
    priority: int | None = None

    @property
    def task(self) -> str:
        return str(self.headers.get("task"))

    @property
    def id(self) -> str:
        return str(self.headers.get("id"))

    @property
    def retries(self) -> int:
        return int(self.headers.get("retries") or 0)

    def why_not_movable(self, embedded: Mapping[str, Any]) -> str | None:
        """What keeps it from running outside of Celery, None where nothing does. ``embedded`` ends its body."""
        followed = [name for name in ("callbacks", "errbacks", "chain", "chord") if embedded.get(name)]
        if followed:
            return f"it has {followed[0]}, which Celery alone can follow"
        if self.headers.get("group"):
            return "it is part of a group, which Celery alone can gather"
        try:
            validation.message_id(self.headers.get("id"))
            validation.text("its task", self.headers.get("task"), limits.ID_BYTES, minimum=1)
        except InvalidArgument as error:
            return str(error)
        return None

    def payload(self) -> bytes:
        """As a worker of Tickwheel reads it: the task, and the arguments of what `running` makes of it."""
        headers = {
            name: value for name, value in self.headers.items() if name not in _OMITTED_HEADERS and value is not None
        }
        args: dict[str, Any] = {"headers": headers, "body": self.body}
        if self.reply_to:
            args["reply_to"] = self.reply_to
        if self.priority is not None:
            args["priority"] = self.priority
        return json.dumps({"task": self.task, "args": args}, separators=(",", ":")).encode()

    def to_new_message(
        self, timezone: tzinfo, max_attempts: int | None = None, *, lowest_first: bool = True
    ) -> NewMessage:
        """The message to enqueue, the same each time. Raises InvalidArgument for an ETA that is none, and what is long.

        ``timezone`` is that of an ETA that names none. ``lowest_first``: the priority 0 goes first, as on Redis.
        """
        due = self._due(timezone)
        deadline: datetime | timedelta | None = None
        if self.priority:
            step = self.priority * (_PRIORITY if lowest_first else -_PRIORITY)
            deadline = step if due is None else due + step
        payload = self.payload()
        if len(payload) > limits.PAYLOAD_BYTES_MAX:
            maximum = limits.PAYLOAD_BYTES_MAX
            raise InvalidArgument(f"it has {len(payload):,} bytes, and at most {maximum:,} are allowed")
        return NewMessage(payload, self.id, None, due, deadline, max_attempts=max_attempts)

    def _due(self, timezone: tzinfo) -> datetime | None:
        eta = self.headers.get("eta")
        if eta is None:
            return None
        due = parse_time("eta", eta, timezone)
        if due > datetime.now(UTC) + _MAX_ETA_AHEAD:
            raise InvalidArgument(
                f"its eta is more than {_MAX_ETA_AHEAD.days} days ahead, the furthest that is allowed"
            )
        return max(due, datetime(1970, 1, 1, tzinfo=UTC))


def parse_time(label: str, text: object, timezone: tzinfo) -> datetime:
    """A time as Celery's headers have it. Raises InvalidArgument."""
    try:
        parsed = datetime.fromisoformat(str(text))
    except ValueError as error:
        raise InvalidArgument(f"its {label} is no time in ISO 8601: {validation.preview(text)}") from error
    return parsed if parsed.utcoffset() is not None else parsed.replace(tzinfo=timezone)
