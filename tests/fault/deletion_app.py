"""The app for the tests of workers whose queue is deleted. Each thread takes one message of "single" at a time."""

import time
from datetime import timedelta

from tests.fault.worker_app import record, run_until_exists
from tickwheel.tasks import TaskApp, current

app = TaskApp(timeout=timedelta(seconds=30))
app.queue("single", lease=timedelta(seconds=2), batch=1, iterations=1)
app.queue("batch", lease=timedelta(seconds=2), batch=10)
app.queue("exclusive", exclusive_key="customer", indexed=["plan", "customer"])


@app.task(queue="single")
def wait_for(path: str) -> None:
    """Runs until a file exists, also if the lease is lost."""
    run_until_exists(path)


@app.task(queue="batch")
def succeed() -> None:
    pass


@app.task(queue="batch")
def wait_until_lost() -> None:
    record("began")
    while not current().is_lost():
        time.sleep(0.01)
    record("lost")
