"""The app for the tests of lost leases: a task of an exclusive queue that records when it runs, and when it is lost.

Each line of the record has an action, the id and the attempt of the message, and the monotonic time: `runs` at every
turn of the task, `lost` and `held` when `is_lost` becomes true or false.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from tickwheel.tasks import TaskApp, current

RECORD = Path(os.environ.get("RECORD", "/dev/null"))
LEASE = timedelta(seconds=3)
app = TaskApp(timeout=timedelta(seconds=30))
app.queue("orders", exclusive_key="customer", lease=LEASE, backoff=timedelta(0))


def record(action: str) -> None:
    message = current().message
    with RECORD.open("a") as file:
        file.write(f"{action} {message.id} {message.attempt} {time.monotonic()}\n")


def turns(path: str) -> Iterator[None]:
    """Yield until a file exists."""
    was_lost = False
    while not Path(path).exists():
        record("runs")
        if (is_lost := current().is_lost()) != was_lost:
            record("lost" if is_lost else "held")
            was_lost = is_lost
        yield


@app.task(queue="orders", metadata=["customer"])
def run_until(customer: str, path: str) -> None:
    for _ in turns(path):
        time.sleep(0.01)


@app.task(queue="orders", metadata=["customer"])
async def await_until(customer: str, path: str) -> None:
    for _ in turns(path):
        await asyncio.sleep(0.01)
