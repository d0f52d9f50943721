"""A Celery message, and its conversion to a Tickwheel message for the same call.

The body is copied as the JSON text that Celery wrote, so a task receives the same arguments as in Celery. This module
does not import Celery.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.model.message import NewMessage
from tickwheel.model.priority import lead
from tickwheel.runtime.foreign_data import decode_json

# Headers that repeat a field of the message, or that only people read.
_OMITTED_HEADERS: Final = frozenset({"task", "id", "eta", "lang", "argsrepr", "kwargsrepr"})
# The highest priority of AMQP. Celery on Redis uses 0 to 9.
_MAX_PRIORITY: Final = 255
# Neither the import nor a worker meets Python's limit of recursion at this depth, whatever their stack.
_MAX_LEVELS: Final = 100
_MAX_ETA_AHEAD = timedelta(milliseconds=limits.DELAY_MS_MAX) - timedelta(days=1)
# The calls that Celery makes after a call. Celery writes them into the body, but also obeys headers of these names.
_FOLLOWING_CALLS: Final = ("callbacks", "errbacks", "chain", "chord")


@dataclass(frozen=True, slots=True)
class CeleryMessage:
    """One message of Celery's protocol 2.

    ``body`` is a JSON list: positional arguments, keyword arguments, and the calls that follow this call.
    """

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
        """Return the reason why Tickwheel cannot run this call, or None. ``embedded`` is the last item of the body."""
        if reason := why_only_celery_can_run(self.headers, embedded):
            return reason
        try:
            validation.message_id(self.headers.get("id"))
            validation.text("its task", self.headers.get("task"), limits.ID_BYTES, minimum=1)
        except InvalidArgument as error:
            return str(error)
        return None

    def payload(self) -> bytes:
        """Return the payload for a Tickwheel worker: the task's name, and the arguments of its function.

        `celery/task_adapter.py` defines this function, which calls the Celery task. Raises InvalidArgument if a header
        is not a JSON value, such as Infinity, or is nested too deeply.
        """
        headers = {
            name: value for name, value in self.headers.items() if name not in _OMITTED_HEADERS and value is not None
        }
        args: dict[str, Any] = {"headers": headers, "body": self.body}
        if self.reply_to:
            args["reply_to"] = self.reply_to
        if self.priority is not None:
            args["priority"] = self.priority
        try:
            return json.dumps({"task": self.task, "args": args}, separators=(",", ":"), allow_nan=False).encode()
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(f"its headers cannot be encoded as JSON: {error}") from error

    def to_new_message(self, max_attempts: int | None = None, *, lowest_first: bool = True) -> NewMessage:
        """Return the message to enqueue. Repeated calls of this method return the same message.

        ``lowest_first`` means that priority 0 is the most urgent, as with Celery on Redis. Raises InvalidArgument if
        the ETA is invalid or too far ahead, if the priority is not from 0 to 255, or if the payload is too long or
        cannot be encoded.
        """
        due = self._due()
        if not 0 <= (self.priority or 0) <= _MAX_PRIORITY:
            raise InvalidArgument(refused_priority(self.priority))
        deadline: datetime | timedelta | None = None
        if self.priority:
            shift = lead(self.priority) if lowest_first else -lead(self.priority)
            deadline = shift if due is None else due + shift
        payload = self.payload()
        if len(payload) > limits.PAYLOAD_BYTES_MAX:
            raise InvalidArgument(
                f"it has {len(payload):,} bytes, and at most {limits.PAYLOAD_BYTES_MAX:,} are allowed"
            )
        return NewMessage(payload, self.id, None, due, deadline, max_attempts=max_attempts)

    def _due(self) -> datetime | None:
        eta = self.headers.get("eta")
        if eta is None:
            return None
        due = parse_time("eta", eta)
        if due > datetime.now(UTC) + _MAX_ETA_AHEAD:
            raise InvalidArgument(f"its eta is more than {_MAX_ETA_AHEAD.days} days ahead, which is the maximum")
        return max(due, datetime(1970, 1, 1, tzinfo=UTC))


def refused_priority(priority: object) -> str:
    """Return the reason why a message with this priority cannot be moved."""
    return f"its priority is {validation.preview(priority)}, and only 0 to {_MAX_PRIORITY} are allowed"


def call_of(payload: bytes | str) -> tuple[str, str] | bytes | str:
    """Return the task and the body of a payload that `CeleryMessage.payload` has made, or any other payload itself."""
    try:
        call = decode_message(payload)
        return str(call["task"]), str(call["args"]["body"])
    except (ValueError, LookupError, TypeError):
        return payload


def decode_message(text: bytes | str) -> Any:
    """Decode JSON. Raises ValueError, also for values that are nested in more than 100 levels."""
    value = decode_json(text)
    level = [value]
    for _ in range(_MAX_LEVELS):
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _items(outer)]
        if not level:
            return value
    raise ValueError(f"it is nested too deeply: at most {_MAX_LEVELS} levels are allowed")


def _items(outer: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return outer.values() if isinstance(outer, dict) else outer


def why_only_celery_can_run(headers: Mapping[str, Any], embedded: Mapping[str, Any]) -> str | None:
    """Return the reason why a call needs a worker of Celery, or None. ``embedded`` is the last item of the body."""
    for name in _FOLLOWING_CALLS:
        if embedded.get(name) or headers.get(name):
            return f"it has {name}, which only Celery can run"
    if embedded.get("group") or headers.get("group"):
        return "it is part of a group, which only Celery can run"
    return None


def without_following_calls(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers of a call without those for which only Celery can run it."""
    return {name: value for name, value in headers.items() if name not in (*_FOLLOWING_CALLS, "group")}


def parse_time(label: str, text: object) -> datetime:
    """Return a time of Celery's headers. A time without a time zone is UTC, whatever ``timezone`` the app has, as in
    Celery's worker (`celery.utils.time.maybe_make_aware`).

    Raises InvalidArgument if the text is not a time in ISO 8601.
    """
    try:
        parsed = datetime.fromisoformat(str(text))
    except ValueError as error:
        raise InvalidArgument(f"its {label} is not a time in ISO 8601: {validation.preview(text)}") from error
    return parsed if parsed.utcoffset() is not None else parsed.replace(tzinfo=UTC)
