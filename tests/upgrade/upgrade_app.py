"""The tasks of the test of rolling upgrades. They use only what the earlier version has, too."""

import os
from datetime import timedelta
from pathlib import Path

import tickwheel
from tests.support.print_line import print_line
from tickwheel.tasks import TaskApp, current

app = TaskApp(os.environ.get("TICKWHEEL_URL"), timeout=timedelta(seconds=30))
app.queue("tasks", lease=timedelta(seconds=30), max_attempts=50)
print_line(f"version {tickwheel.__path__[0]}")


@app.task(queue="tasks")
def note(n: int) -> int:
    """Append the message's id to the file of the notes. The working directory of each worker has one."""
    with Path("notes").open("a") as notes:
        notes.write(f"done tasks {current().message.id}\n")
    return n
