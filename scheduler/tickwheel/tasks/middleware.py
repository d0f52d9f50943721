"""Hooks around tasks: derive from `Middleware`, override methods, add an instance with `TaskApp.add_middleware`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tickwheel.model.message import LeasedMessage
from tickwheel.tasks.run_context import Outcome, Run

if TYPE_CHECKING:
    from tickwheel.tasks.app import TaskApp


class Middleware:
    """Called in each worker process. ``startup`` and the *before* hooks run in the order of registration, ``shutdown``
    and the *after* hooks in the reverse order.

    ``before_task`` can prevent a run: it raises `Reject`, `Skip` or `RetryLater`. Any other error in ``before_task``
    fails the task. An error in ``startup`` is logged and ends the process. If no process of the worker has started yet,
    this ends the worker, and otherwise the supervisor starts another process. Errors in the other hooks are logged and
    have no effect.

    The time of hooks does not count for the time limit of a task. But if the ``before_task`` hooks or the
    ``after_task`` hooks of a task take two seconds longer than this limit, the worker kills the process.
    """

    def startup(self, app: "TaskApp") -> None:
        """Called before the process takes its first message."""

    def shutdown(self, app: "TaskApp") -> None:
        """Called after the process has settled its last message."""

    def before_batch(self, queue: str, messages: Sequence[LeasedMessage]) -> None:
        """Called once for each batch, with its leased messages, before the first of their tasks runs."""

    def after_batch(self, queue: str, outcomes: Sequence[Outcome]) -> None:
        """Called once for each batch, with the outcomes of the tasks that have run."""

    def before_task(self, run: Run) -> None:
        """Called before a task runs. The hook may change ``run.arguments``."""

    def after_task(self, run: Run, outcome: Outcome) -> None:
        """Called with the outcome of a task, before the message is settled on the server."""
