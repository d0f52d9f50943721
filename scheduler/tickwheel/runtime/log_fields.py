"""The machine-readable fields of log lines. With `--json`, they are members of the line's JSON document."""

from collections.abc import Callable
from typing import Any, Protocol


class MessageRef(Protocol):
    """A leased message, or another object that identifies one."""

    queue: str
    id: str
    attempt: int


def log_fields(event: str, message: MessageRef | None = None, **more: Any) -> dict[str, Any]:
    """Return the ``extra`` of a log line: the event, the message that it concerns, and further fields."""
    message_fields = {} if message is None else {"queue": message.queue, "id": message.id}
    return {"fields": {"event": event, **message_fields, **more}}


def log_message(
    log: Callable[..., None], event: str, message: MessageRef, text: str, *args: object, **more: Any
) -> None:
    """Log a line about a leased message. ``log`` is a method of a logger. The line begins with the queue and the id."""
    fields = {"event": event, "queue": message.queue, "id": message.id, "attempt": message.attempt, **more}
    log(f"%s/%s: {text}", message.queue, message.id, *args, extra={"fields": fields})
