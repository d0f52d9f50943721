"""The app for the tests of recurring tasks: two schedules of each second. `crawl` takes longer than a second.

`move_until` moves the app to another namespace until a file exists. `wait_for` ends when a file exists.
"""

import time
from datetime import timedelta
from pathlib import Path

from tests.fault.worker_app import record
from tickwheel.tasks import TaskApp

app = TaskApp()
app.queue("work", lease=timedelta(seconds=1), backoff=timedelta(0), max_attempts=100)


@app.task(queue="work")
def tick() -> None:
    record("tick")


@app.task(queue="work")
def crawl() -> None:
    time.sleep(1.5)


@app.task(queue="work")
def move_until(path: str) -> None:
    where = app.where["namespace"]
    app.move(namespace=f"{where}-other")
    record("moved")
    while not Path(path).exists():
        time.sleep(0.01)
    app.move(namespace=where)
    record("returned")


@app.task(queue="work")
def wait_for(path: str) -> None:
    record("waits")
    while not Path(path).exists():
        time.sleep(0.01)


app.cron("* * * * * *", tick, name="tick", missed="all")
app.every(timedelta(seconds=1), crawl, name="crawl", overlap=False)
