"""An app for `tickwheel worker` with three queues, whose tasks record the time at which they run.

TICKWHEEL_URL is the URL of the server, and NO_OP_MARKS the file of the times.
"""

import os
import time
from pathlib import Path

from tickwheel.tasks import TaskApp

QUEUES = ("first", "second", "third")
app = TaskApp()
for name in QUEUES:
    app.queue(name)
_PATH = Path(os.environ.get("NO_OP_MARKS", "/dev/null"))


def _mark() -> None:
    began = time.perf_counter()
    with _PATH.open("a") as file:
        file.write(f"{began}\n")


@app.task(queue="first")
def first(n: int) -> None:
    _mark()


@app.task(queue="second")
def second(n: int) -> None:
    _mark()


@app.task(queue="third")
def third(n: int) -> None:
    _mark()
