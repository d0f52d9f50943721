"""A Celery application that moves to Tickwheel; producers and the workers of both sides import the same module.

Each task writes a line to the file RECORD: the side that ran it, the task, its id, and its number of retries.
"""

# mypy: disable-error-code="untyped-decorator"

import os
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from celery import Celery, signals
from celery.exceptions import Ignore, Reject

from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp

RECORD = Path(os.environ.get("RECORD", "/dev/null"))
SIDE = os.environ.get("SIDE", "here")

celery: Any = Celery("shop", broker=os.environ.get("BROKER"), backend=os.environ.get("BACKEND"))
celery.conf.broker_transport_options = {"unacked_restore_interval": 1}
celery.conf.broker_connection_retry_on_startup = True
celery.conf.worker_prefetch_multiplier = 1
celery.conf.task_routes = {"shop.urgent*": {"queue": "urgent"}}
tickwheel = TaskApp()
migrate(celery, tickwheel)
_started: list[str] = []


def record(task: Any, *details: object) -> None:
    line = " ".join(map(str, (SIDE, task.name, task.request.id, task.request.retries, *details)))
    with RECORD.open("a") as file:
        file.write(f"{line}\n")


@signals.worker_process_init.connect
def prepared(**_: Any) -> None:
    _started.append("process")


@celery.task(bind=True, name="shop.note")
def note(self: Any, text: str = "") -> str:
    record(self, text)
    return f"noted {text}"


@celery.task(bind=True, name="shop.urgent")
def urgent(self: Any) -> None:
    record(self)


@celery.task(bind=True, name="shop.about")
def about(self: Any) -> dict[str, Any]:
    record(self)
    request = self.request
    return {
        "prepared": list(_started),
        "root": request.root_id,
        "parent": request.parent_id,
        "trace": request.get("trace"),
        "shadow": request.shadow,
        "queue": request.delivery_info["routing_key"],
        "direct": request.called_directly,
    }


@celery.task(bind=True, name="shop.ask")
def ask(self: Any) -> str:
    record(self)
    return str(about.delay().id)


@celery.task(bind=True, name="shop.kinds", ignore_result=False)
def kinds(self: Any, *args: Any, **kwargs: Any) -> list[str]:
    record(self)
    return [f"{type(argument).__name__} {argument!r}" for argument in (*args, *kwargs.values())]


@celery.task(bind=True, name="shop.retried", max_retries=3)
def retried(self: Any, times: int, throw: bool = True) -> str:
    record(self)
    if self.request.retries < times:
        self.retry(countdown=0.05, throw=throw)
    return f"after {self.request.retries}"


@celery.task(bind=True, name="shop.changed", max_retries=3)
def changed(self: Any, n: int) -> None:
    record(self)
    self.retry(args=(n + 1,), countdown=0)


@celery.task(bind=True, name="shop.unsteady", autoretry_for=(ConnectionError,), default_retry_delay=0, max_retries=2)
def unsteady(self: Any) -> None:
    record(self)
    raise ConnectionError("no line")


@celery.task(bind=True, name="shop.boom")
def boom(self: Any) -> None:
    record(self)
    raise ValueError("no such user")


@celery.task(bind=True, name="shop.ignored")
def ignored(self: Any) -> None:
    record(self)
    raise Ignore


@celery.task(bind=True, name="shop.rejected")
def rejected(self: Any) -> None:
    record(self)
    raise Reject("not here", requeue=False)


@celery.task(bind=True, name="shop.requeued")
def requeued(self: Any) -> str:
    record(self)
    if not self.request.retries:
        raise Reject("busy", requeue=True)
    return "done"


@celery.task(bind=True, name="shop.slow", time_limit=0.3)
def slow(self: Any) -> None:
    record(self)
    while True:
        pass


VALUES = (
    datetime(2030, 1, 2, 3, 4, 5),  # noqa: DTZ001  # one without a zone arrives as such
    date(2030, 1, 2),
    Decimal("1.10"),
    UUID(int=7),
    b"\xff",
    10**30,
    float("inf"),
)
