"""An app for `tickwheel worker` with a task that runs until a file exists."""

import time
from pathlib import Path

from tickwheel.tasks import TaskApp

QUEUE = "long"
app = TaskApp()
app.queue(QUEUE)


@app.task(queue=QUEUE)
def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.02)
