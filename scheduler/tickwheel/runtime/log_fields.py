"""What a worker's log lines say for programs to read, beside their text: with `--json` they are members of the line."""

from typing import Any, Protocol


class Named(Protocol):
    """A message, or what a supervisor knows of one."""

    @property
    def queue(self) -> str: ...

    @property
    def id(self) -> str: ...


def fields(event: str, message: Named | None = None, **more: Any) -> dict[str, Any]:
    """For the ``extra`` of a line: what has happened, to which message, and more of it."""
    of_message = {} if message is None else {"queue": message.queue, "id": message.id}
    return {"fields": {"event": event, **of_message, **more}}
