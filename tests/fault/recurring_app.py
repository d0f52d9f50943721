"""The app for the tests of recurring tasks: two schedules of each second. `crawl` takes longer than a second."""

import time
from datetime import timedelta

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


app.cron("* * * * * *", tick, name="tick", missed="all")
app.every(timedelta(seconds=1), crawl, name="crawl", overlap=False)
