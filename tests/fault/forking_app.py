"""The app for the tests of forked children: tasks whose child continues after the fork, as the task itself does."""

import os
import sys
import time
from pathlib import Path

from tickwheel.tasks import TaskApp

app = TaskApp(os.environ.get("TICKWHEEL_URL"), drive=False)


def write(line: str) -> None:
    with Path(os.environ["RECORD"]).open("a") as record:
        record.write(f"{line}\n")


def fork() -> bool:
    """Return whether this is the child."""
    child = os.fork()
    if child:
        write(f"child {child}")
    return not child


@app.task(queue="work", max_attempts=1)
def child_returns() -> None:
    fork()


@app.task(queue="work", max_attempts=1)
def child_exits() -> None:
    if fork():
        sys.exit(3)


@app.task(queue="work", max_attempts=1)
def child_fails() -> None:
    if fork():
        raise ValueError("of the child")


@app.task(queue="work", max_attempts=1)
async def child_of_async_task_returns() -> None:
    fork()


@app.task(queue="work", max_attempts=1)
def wait_with_child() -> None:
    if fork():
        time.sleep(300)
        os._exit(0)
    time.sleep(300)


@app.task(queue="work", max_attempts=1)
def note(n: int) -> None:
    write(f"note {n}")
