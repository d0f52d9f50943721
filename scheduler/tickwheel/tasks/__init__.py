"""Functions that run later, in workers: declare tasks with a `TaskApp`, send calls from any program, and run them with
``tickwheel worker``.

    from datetime import timedelta
    from tickwheel.tasks import TaskApp

    app = TaskApp("redis://localhost:6379")

    @app.task(queue="mail", max_attempts=5, time_limit=timedelta(seconds=20))
    def send(user: int, template: str = "welcome") -> None: ...

    send.later(timedelta(minutes=15), user=7)

A call runs at least once: if its worker dies, the call runs again. So tasks should be idempotent.

This package declares tasks, sends calls, and runs one leased message (`Runner`). The processes that lease messages are
in `tickwheel.worker`.

app.py               `TaskApp`: the tasks, queues and schedules of a program
app_clients.py       the clients of an app, which can move to other options
client_group.py      the clients with the same options, for threads and for event loops
declared_config.py   the declaration of a queue that the app may not create or change
task.py              `Task`: a function that can be called later
handle.py            `EnqueuedCall` and `TaskHandle`: cancel a call, or wait for its result
signature.py         the arguments of a task: encoding, decoding, checks
parameter_types.py   which types of parameters a worker can decode
task_queue.py        `TaskQueue`: how workers take messages from a queue
schedule.py          `Schedule`: a recurring call, as messages
schedule_times.py    the times of a schedule: cron expressions and intervals
run_context.py       `Run` and `Outcome`: one execution of a task
runner.py            `Runner`: the execution of the call in a message
middleware.py        `Middleware`: hooks around tasks
retry.py             `Retry`: the back-off after a failed attempt
exceptions.py        the exceptions by which a task chooses its outcome
celery_routes.py     `Route`: the shares of calls for Celery and for Tickwheel during a migration
"""

from tickwheel.errors import ArgumentsRefused, NoResult, ResultExpired
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.celery_routes import Route
from tickwheel.tasks.exceptions import Reject, RetryLater, Skip, TimeLimitExceeded
from tickwheel.tasks.handle import EnqueuedCall, TaskHandle
from tickwheel.tasks.middleware import Middleware
from tickwheel.tasks.retry import Retry
from tickwheel.tasks.run_context import Outcome, Run, current
from tickwheel.tasks.schedule import Schedule
from tickwheel.tasks.task import Task
from tickwheel.tasks.task_queue import TaskQueue

__all__ = [
    "ArgumentsRefused",
    "EnqueuedCall",
    "Middleware",
    "NoResult",
    "Outcome",
    "Reject",
    "ResultExpired",
    "Retry",
    "RetryLater",
    "Route",
    "Run",
    "Schedule",
    "Skip",
    "Task",
    "TaskApp",
    "TaskHandle",
    "TaskQueue",
    "TimeLimitExceeded",
    "current",
]
