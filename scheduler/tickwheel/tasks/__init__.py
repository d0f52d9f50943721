"""Functions as messages: declare them with a `TaskApp`, send them from any program, run them by ``tickwheel worker``.

    from datetime import timedelta
    from tickwheel.tasks import TaskApp

    app = TaskApp("redis://localhost:6379")

    @app.task(queue="mail", max_attempts=5, time_limit=timedelta(seconds=20))
    def send(user: int, template: str = "welcome") -> None: ...

    send.later(timedelta(minutes=15), user=7)

A task runs at least once: one whose worker dies runs again. So it should do no harm the second time.
"""

from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.celery_routes import Route
from tickwheel.tasks.exceptions import Reject, RetryLater, Skip, TimeLimitExceeded
from tickwheel.tasks.middleware import Middleware
from tickwheel.tasks.retry import Retry
from tickwheel.tasks.run import Outcome, Run, current
from tickwheel.tasks.schedule import Schedule
from tickwheel.tasks.task import Task
from tickwheel.tasks.task_queue import TaskQueue

__all__ = [
    "Middleware",
    "Outcome",
    "Reject",
    "Retry",
    "RetryLater",
    "Route",
    "Run",
    "Schedule",
    "Skip",
    "Task",
    "TaskApp",
    "TaskQueue",
    "TimeLimitExceeded",
    "current",
]
