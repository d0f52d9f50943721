"""One run of a task and its outcome, as middleware and tasks see them."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from tickwheel.errors import TickwheelError
from tickwheel.model.message import LeasedMessage
from tickwheel.tasks.task import Task


@dataclass(slots=True)
class Outcome:
    """How a task ended: ``error`` is None where it is done. ``retry_in`` None is the queue's own back-off."""

    task: str
    seconds: float = 0.0
    result: str | None = None
    error: str | None = None
    retry_in: timedelta | None = None
    final: bool = False


@dataclass(slots=True)
class Run:
    """A task while it runs."""

    task: Task[..., Any]
    message: LeasedMessage
    arguments: dict[str, Any] = field(default_factory=dict)
    is_lost: Callable[[], bool] = field(default=lambda: False)
    """Whether the lease is no longer ours: the message was cancelled, say. A long task may look, and stop."""


CURRENT_RUN: Final[ContextVar[Run | None]] = ContextVar("tickwheel_run", default=None)


def current() -> Run:
    """The run that this code is part of: the message with its id and attempt, the task. Raises outside of a task."""
    run = CURRENT_RUN.get()
    if run is None:
        raise TickwheelError("no task is running here")
    return run
