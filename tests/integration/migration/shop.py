"""A Celery application that moves to Tickwheel; producers and the workers of both sides import the same module.

Each task writes a line to the file RECORD: the side that ran it, the task, its id, and its number of retries. The
signals about the ends of runs and about revoked calls, and the handler ``on_failure``, write to the file SIGNALS: their
name, the id of the call, and the class of the error. If KILL_FIRST is set, the first run of each call kills its process
before its task begins; this run writes a line to RECORD, too, whose last word is KILLED.
"""

# mypy: disable-error-code="untyped-decorator"

import asyncio
import ctypes
import os
import signal
import sys
import time
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from celery import Celery, signals
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from celery.utils.log import get_task_logger

from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp

RECORD = Path(os.environ.get("RECORD", "/dev/null"))
SIGNALS = Path(os.environ.get("SIGNALS", "/dev/null"))
SIDE = os.environ.get("SIDE", "here")
KILLED = "killed"

celery: Any = Celery("shop", broker=os.environ.get("BROKER"), backend=os.environ.get("BACKEND"))
celery.conf.broker_transport_options = {"unacked_restore_interval": 1}
celery.conf.broker_connection_retry_on_startup = True
celery.conf.worker_prefetch_multiplier = 1
celery.conf.task_routes = {"shop.urgent*": {"queue": "urgent"}}
tickwheel = TaskApp()
tickwheel.queue("batched", batch=10, lease=timedelta(seconds=2), payload_limit=262_144)
migrate(celery, tickwheel)
_started: list[str] = []
_log = get_task_logger(__name__)


def record(task: Any, *details: object) -> None:
    line = " ".join(map(str, (SIDE, task.name, task.request.id, task.request.retries, *details)))
    with RECORD.open("a") as file:
        file.write(f"{line}\n")


def record_signal(name: str, id_: str | None, error: object) -> None:
    with SIGNALS.open("a") as file:
        file.write(f"{name} {id_} {type(error).__name__}\n")


@signals.task_success.connect
def succeeded(sender: Any, **_: Any) -> None:
    record_signal("task_success", sender.request.id, None)


@signals.task_retry.connect
def will_be_retried(request: Any, reason: Any = None, **_: Any) -> None:
    record_signal("task_retry", request.id, getattr(reason, "exc", None))


@signals.task_failure.connect
def failed(task_id: str, exception: Exception, **_: Any) -> None:
    record_signal("task_failure", task_id, exception)


@signals.task_revoked.connect
def revoked(request: Any, terminated: bool, expired: bool, **_: Any) -> None:
    record_signal(f"task_revoked:terminated={terminated},expired={expired}", request.id, None)


@signals.task_prerun.connect
def kill_the_first_run(task_id: str, task: Any, **_: Any) -> None:
    if os.environ.get("KILL_FIRST") and not task.request.delivery_info["redelivered"]:
        record(task, KILLED)
        kill_process()


def kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


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


@celery.task(bind=True, name="shop.joined")
def joined(self: Any, parts: list[str]) -> str:
    record(self)
    return ", ".join(parts)


@celery.task(bind=True, name="shop.prioritized")
def prioritized(self: Any) -> str:
    record(self)
    _log.info("the priority is of the %s", "request")
    return f"priority {self.request.delivery_info['priority']}"


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


@celery.task(bind=True, name="shop.retried_quietly", max_retries=3)
def retried_quietly(self: Any, end: str) -> str:
    """Request a retry without its exception, and then end in another way."""
    record(self)
    if self.request.retries:
        return "again"
    self.retry(countdown=0, throw=False)
    if end == "ignore":
        raise Ignore
    if end == "reject":
        raise Reject("busy", requeue=False)
    raise ValueError(end)


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


# With `acks_late`, because Celery cannot reject a message that is acknowledged.
@celery.task(bind=True, name="shop.requeued", acks_late=True)
def requeued(self: Any) -> str:
    record(self)
    if not self.request.delivery_info["redelivered"]:
        raise Reject("busy", requeue=True)
    return "done"


@celery.task(bind=True, name="shop.slow", time_limit=0.3)
def slow(self: Any) -> None:
    record(self)
    while True:
        pass


class Reporting(celery.Task):  # type: ignore[misc]  # a class at run time
    def on_failure(self, exc: Exception, task_id: str, *_: Any) -> None:
        record_signal("on_failure", task_id, exc)


@celery.task(bind=True, base=Reporting, name="shop.stuck", time_limit=0.3, max_retries=3)
def stuck(self: Any) -> None:
    record(self)
    # Native code that holds the interpreter, so no error can be raised in this process.
    ctypes.PyDLL(None).usleep(60_000_000)


@celery.task(bind=True, base=Reporting, name="shop.over", time_limit=0.3)
def over(self: Any) -> None:
    record(self)
    time.sleep(60)


@celery.task(bind=True, name="shop.soft", soft_time_limit=0.2, time_limit=60)
def soft(self: Any, catches: bool) -> str:
    record(self)
    try:
        time.sleep(50)
    except SoftTimeLimitExceeded:
        if not catches:
            raise
        time.sleep(0.3)
    return "cleaned up"


@celery.task(bind=True, base=Reporting, name="shop.killed", max_retries=1)
def killed(self: Any, times: int = 1_000) -> str:
    record(self)
    if self.request.retries < times:
        kill_process()
    return "done"


@celery.task(bind=True, name="shop.killed_often", max_retries=10)
def killed_often(self: Any) -> None:
    record(self)
    kill_process()


@celery.task(bind=True, name="shop.once", max_retries=0)
def once(self: Any, waits: bool = False) -> str:
    """Record the process, too. With ``waits``, run until the process is killed."""
    record(self, os.getpid())
    while waits:
        time.sleep(0.05)
    return "once"


class KilledAfterwards(celery.Task):  # type: ignore[misc]
    def on_success(self, *_: Any) -> None:
        kill_process()


@celery.task(bind=True, base=KilledAfterwards, name="shop.killed_afterwards", max_retries=1)
def killed_afterwards(self: Any) -> str:
    record(self)
    return "done"


@celery.task(bind=True, name="shop.exits")
def exits(self: Any) -> None:
    record(self)
    sys.exit(3)


@celery.task(bind=True, name="shop.cancels_itself", max_retries=3)
def cancels_itself(self: Any) -> None:
    record(self)
    raise asyncio.CancelledError("the loop was closed")


@celery.task(bind=True, name="shop.insistent", max_retries=1)
def insistent(self: Any) -> None:
    record(self)
    self.retry(countdown=0, max_retries=10)


@celery.task(bind=True, name="shop.patient", autoretry_for=(KeyError,), retry_kwargs={"max_retries": 5, "countdown": 0})
def patient(self: Any) -> str:
    record(self)
    if self.request.retries < 5:
        raise KeyError("not yet")
    return "patient"


@celery.task(bind=True, base=Reporting, name="shop.sleeps")
def sleeps(self: Any, until: str, retries: bool = False, requeues: bool = False) -> str:
    """Wait until the file ``until`` exists. Last long enough that the worker checks the calls that wait behind this."""
    record(self)
    time.sleep(0.6)
    while not Path(until).exists():
        time.sleep(0.05)
    if retries:
        self.retry(countdown=0)
    if requeues:
        raise Reject("busy", requeue=True)
    return "awake"


@celery.task(bind=True, name="held.limited", rate_limit="100/s")
def limited(self: Any) -> str:
    record(self)
    return "limited"


@celery.task(bind=True, name="held.lengthy", time_limit=691_200)
def lengthy(self: Any) -> str:
    record(self)
    return "lengthy"


@celery.task(bind=True, name="held.elsewhere", queue="not:allowed")
def elsewhere(self: Any) -> str:
    record(self)
    return "elsewhere"


@celery.task(bind=True, name="shop.replaced")
def replaced(self: Any) -> None:
    record(self)
    raise self.replace(note.si("instead"))


VALUES = (
    datetime(2030, 1, 2, 3, 4, 5),  # noqa: DTZ001  # one without a zone arrives as such
    date(2030, 1, 2),
    Decimal("1.10"),
    UUID(int=7),
    b"\xff",
    10**30,
    float("inf"),
)
