"""Tasks of Celery that have moved to Tickwheel: one records what a task of `lease_app` records, and one succeeds."""

import os
import time
from typing import Any

from celery import Celery

from tests.fault.lease_app import LEASE, record, turns
from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp

celery: Any = Celery("orders", broker="memory://", set_as_current=False)
celery.conf.result_backend = os.environ.get("RESULT_BACKEND")
app = TaskApp()
app.queue("celery", lease=LEASE)
migrate(celery, app)


@celery.task(name="orders.run_until")  # type: ignore[untyped-decorator]
def run_until(path: str) -> None:
    for _ in turns(path):
        time.sleep(0.01)


@celery.task(name="orders.succeed")  # type: ignore[untyped-decorator]
def succeed() -> None:
    record("runs")
