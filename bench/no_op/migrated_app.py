"""A Celery app with three queues that has moved to Tickwheel, and a program that calls its tasks one after the other.

`python -m bench.no_op.migrated_app COUNT SHORTEST LONGEST` routes all calls to Tickwheel, makes COUNT calls with random
pauses between them, in seconds, and prints the milliseconds of each call as a list in JSON. NO_OP_REDIS is the URL of
the server for Celery's broker and results, and TICKWHEEL_URL the URL of the server or the service for Tickwheel.
"""

import json
import os
import random
import sys
import time

from celery import Celery

from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp

QUEUES = ("first", "second", "third")
# The longest wait for a result. The first call also waits for the start of the worker.
_WAIT_S = 60
# The URL in the syntax of Celery. Tickwheel has the database 0 of the server.
_REDIS = f"{os.environ['NO_OP_REDIS'].replace('unix://', 'redis+socket://')}?virtual_host=1"
celery = Celery("migrated", broker=_REDIS, backend=_REDIS)
# Otherwise, a worker also serves Celery's default queue.
celery.conf.task_default_queue = QUEUES[0]
tickwheel = TaskApp()
migrate(celery, tickwheel)


@celery.task(name="first", queue="first")  # type: ignore[untyped-decorator]
def first(n: int) -> int:
    return n


@celery.task(name="second", queue="second")  # type: ignore[untyped-decorator]
def second(n: int) -> int:
    return n


@celery.task(name="third", queue="third")  # type: ignore[untyped-decorator]
def third(n: int) -> int:
    return n


def measure(count: int, shortest_s: float, longest_s: float) -> list[float]:
    """Return the milliseconds of each call, from ``apply_async`` until the caller has the result."""
    tasks = (first, second, third)
    for task in tasks:
        tickwheel.route(task.name, to="tickwheel")
        # The warm-up.
        task.apply_async((0,)).get(timeout=_WAIT_S)
    chance = random.Random(1)
    milliseconds: list[float] = []
    for n in range(count):
        task = chance.choice(tasks)
        time.sleep(chance.uniform(shortest_s, longest_s))
        began = time.perf_counter()
        value = task.apply_async((n,)).get(timeout=_WAIT_S)
        milliseconds.append(1_000 * (time.perf_counter() - began))
        if value != n:
            raise RuntimeError(f"the call {n} has the result {value!r}")
    return milliseconds


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), *map(float, sys.argv[2:4]))))
