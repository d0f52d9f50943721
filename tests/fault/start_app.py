"""An app whose hook at the start of a process does what the file START contains: it waits, or raises an error.

If the file contains `wait`, the hook waits until the file has another text. Any other text names an error. If the file
is empty or does not exist, the hook does nothing. The hook appends `hook` to the file RECORD when it begins.
"""

import os
import time
from pathlib import Path
from typing import Any

from tickwheel import Forbidden, Unavailable
from tickwheel.tasks import Middleware, TaskApp, TaskQueue
from tickwheel.worker.selectors import QueueSelector, Selection

RECORD, START = (Path(os.environ.get(name, "/dev/null")) for name in ("RECORD", "START"))
ERRORS = {error.__name__: error for error in (ValueError, SystemExit, Unavailable, Forbidden)}
app = TaskApp()


class Database(Middleware):
    """Has the hook."""

    def startup(self, app: TaskApp) -> None:
        with RECORD.open("a") as file:
            file.write("hook\n")
        while (action := START.read_text()) == "wait":
            time.sleep(0.01)
        if action:
            raise ERRORS[action]("no database")


class BadSelector(QueueSelector[TaskQueue]):
    """Cannot be made."""

    def __init__(self, *arguments: Any) -> None:
        raise ValueError("no weights")

    def select_queue(self) -> Selection[TaskQueue]:
        raise NotImplementedError


app.add_middleware(Database())


@app.task(queue="work", name="double")
def double(n: int) -> int:
    return 2 * n
