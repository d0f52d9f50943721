"""What a worker's log lines say for programs to read, beside their text: with `--json` they are members of the line."""

from typing import Any, Protocol


class MessageRef(Protocol):
    """A message, or what a supervisor knows of one."""

    @property
    def queue(self) -> str: ...

    @property
    def id(self) -> str: ...


def log_fields(event: str, message: MessageRef | None = None, **more: Any) -> dict[str, Any]:
    """For the ``extra`` of a line: what has happened, to which message, and more of it."""
    message_fields = {} if message is None else {"queue": message.queue, "id": message.id}
    return {"fields": {"event": event, **message_fields, **more}}
