"""A task of Celery that has moved to Tickwheel, and records what a task of `lease_app` records."""

import time
from typing import Any

from celery import Celery

from tests.fault.lease_app import LEASE, turns
from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp

celery: Any = Celery("orders", broker="memory://", set_as_current=False)
app = TaskApp()
app.queue("celery", lease=LEASE)
migrate(celery, app)


@celery.task(name="orders.run_until")  # type: ignore[untyped-decorator]
def run_until(path: str) -> None:
    for _ in turns(path):
        time.sleep(0.01)
