"""The machine-readable fields of log lines. With `--json`, they are members of the line's JSON document."""

from typing import Any, Protocol


class MessageRef(Protocol):
    """A message, or a record of one with its queue and id."""

    @property
    def queue(self) -> str: ...

    @property
    def id(self) -> str: ...


def log_fields(event: str, message: MessageRef | None = None, **more: Any) -> dict[str, Any]:
    """Return the ``extra`` of a log line: the event, the message that it concerns, and further fields."""
    message_fields = {} if message is None else {"queue": message.queue, "id": message.id}
    return {"fields": {"event": event, **message_fields, **more}}
