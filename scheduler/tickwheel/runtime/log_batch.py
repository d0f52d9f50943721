"""Several log lines at once, without a record for each of them if nothing but the log on stderr receives them.

A record and its fields cost several times as much as the text of a line. For a program that logs two lines for each
task, and runs ten thousand tasks a second, this is most of the cost of its log.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tickwheel.runtime.log_format import StderrHandler

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LineBatch(Generic[T]):
    """A line for each of the items: its text, and its fields (`log_fields`)."""

    items: Sequence[T]
    text: Callable[[T], str]
    fields: Callable[[T], dict[str, Any]]

    def texts(self) -> list[str]:
        return list(map(self.text, self.items))

    def with_fields(self) -> list[tuple[str, dict[str, Any]]]:
        return [(self.text(item), self.fields(item)) for item in self.items]


def log_lines(logger: logging.Logger, level: int, lines: LineBatch[T]) -> None:
    """Log lines of one level. Each of them is what a record with this text and these fields would be.

    If the log of `log_to_stderr` is not the only handler of the logger, or if there are filters, the lines are records:
    the app of a worker can add handlers.
    """
    if not lines.items or not logger.isEnabledFor(level):
        return
    handler = _only_handler(logger)
    if handler is not None and level >= handler.level:
        handler.write_lines(level, logger.name, lines)
        return
    for text, fields in lines.with_fields():
        logger.log(level, "%s", text, extra={"fields": fields})


def _only_handler(logger: logging.Logger) -> StderrHandler | None:
    """Return the handler of the log on stderr if no other handler and no filter concerns records of the logger."""
    handlers: list[logging.Handler] = []
    receiver: logging.Logger | None = logger
    while receiver is not None:
        handlers += receiver.handlers
        receiver = receiver.parent if receiver.propagate else None
    if len(handlers) != 1 or logger.filters or handlers[0].filters:
        return None
    return handlers[0] if isinstance(handlers[0], StderrHandler) else None
