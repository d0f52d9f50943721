"""What goes around tasks: derive from `Middleware`, override what you need, and `TaskApp.add_middleware` it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tickwheel.model.message import LeasedMessage
from tickwheel.tasks.run import Outcome, Run

if TYPE_CHECKING:
    from tickwheel.tasks.app import TaskApp


class Middleware:
    """Called in each worker process: *before* in the order they were added, *after* in the reverse order.

    ``before_task`` may veto: by `Reject`, `Skip` or `RetryLater`; any other error fails the task. An error in
    ``startup`` ends the process, and another one is started; in the rest it is logged, and changes nothing.
    """

    def startup(self, app: "TaskApp") -> None:
        """The process is about to take its first message."""

    def shutdown(self, app: "TaskApp") -> None:
        """The process has settled its last message."""

    def before_batch(self, queue: str, messages: Sequence[LeasedMessage]) -> None:
        """These messages were taken, and are about to run one after the other."""

    def after_batch(self, queue: str, outcomes: Sequence[Outcome]) -> None:
        """All of the batch that was begun has run."""

    def before_task(self, run: Run) -> None:
        """The task is about to run; ``run.arguments`` may be changed."""

    def after_task(self, run: Run, outcome: Outcome) -> None:
        """The task has ended so; the server has not been told yet."""
