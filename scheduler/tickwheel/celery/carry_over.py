"""Decides which tasks of a Celery app stay with Celery, because a Tickwheel worker would not keep all their settings.

The page on the migration has a table of all settings of a task, and of what becomes of each.
"""

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from tickwheel.celery.queue_names import own_tasks
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.celery_routes import TICKWHEEL, Route

_log = logging.getLogger("tickwheel.celery")
# The classes of Celery's worker that handle a message before its task runs. Some tasks name others.
_OWN_CLASSES: Final = {"Strategy": "celery.worker.strategy:default", "Request": "celery.worker.request:Request"}
# How long Celery's workers have to answer, in seconds, and how often they are asked.
_PING_S: Final = 1.0
_PINGS: Final = 3


def check_names(carries_over: object) -> frozenset[str]:
    """Return the names of tasks that go to Tickwheel although it ignores some of their settings.

    Raises InvalidArgument.
    """
    if isinstance(carries_over, str) or not isinstance(carries_over, Iterable):
        raise InvalidArgument(f"carries_over must be a set of task names, not {validation.preview(carries_over)}")
    return frozenset(
        validation.text("a task of carries_over", name, 1_000, minimum=1).decode() for name in carries_over
    )


def why_task_stays(task: Any, carries_over: Collection[str] = ()) -> str | None:
    """Return the reason why the calls of a task stay with Celery, or None."""
    if task.name in carries_over:
        return None
    if task.rate_limit:
        return f"it has the rate_limit {task.rate_limit}"
    for name, default in _OWN_CLASSES.items():
        if (own := getattr(task, name, default)) != default:
            return f"it has its own {name}, {getattr(own, '__qualname__', own)}"
    if task.acks_late and task.time_limit and _repeats_after_timeout(task):
        return "it has acks_on_timeout=False, so it is run again after a time limit"
    return None


def _repeats_after_timeout(task: Any) -> bool:
    on_timeout = getattr(task, "acks_on_timeout", None)
    return (task.acks_on_failure_or_timeout if on_timeout is None else on_timeout) is False


def advice(names: Collection[str]) -> str:
    """Return how to route the tasks nevertheless."""
    which = "it without this setting" if len(names) == 1 else "them without these settings"
    return f"to route {which}, pass migrate(…, carries_over={{{', '.join(map(repr, sorted(names)))}}})"


def explain_stay(celery: Any, carries_over: Collection[str], name: str) -> str | None:
    """Return the reason why the calls of the task of this name stay with Celery, and the remedy, or None."""
    task = celery.tasks.get(name)
    reason = None if task is None else why_task_stays(task, carries_over)
    return None if reason is None else f"{reason}; {advice([name])}"


def check_tasks(celery: Any, app: TaskApp, carries_over: Collection[str], is_restart: bool) -> None:
    """Log the tasks that stay with Celery.

    Raises InvalidArgument if a route sends calls of such a task to Tickwheel, and no worker of Celery answers: with an
    earlier version, these calls ran in Tickwheel, and now nothing would run them. With ``is_restart``, only log this,
    because the other tasks must run while Celery's workers are down.
    """
    reasons = {task.name: reason for task in own_tasks(celery) if (reason := why_task_stays(task, carries_over))}
    if not reasons:
        return
    _log.warning(
        "these tasks stay with Celery, whatever their routes: %s",
        "; ".join(f"{name} ({reason})" for name, reason in sorted(reasons.items())),
    )
    routed = sorted(reasons.keys() & _routed(app.routes()))
    if routed and not _answers(celery):
        refusal = (
            f"task {routed[0]!r} is routed to Tickwheel, but stays with Celery: {reasons[routed[0]]}. No worker of"
            f" Celery answers, so nothing would run its calls: {advice(routed[:1])}, or start a worker of Celery, or"
            f" remove the route by `tickwheel route unset {routed[0]}`"
        )
        if not is_restart:
            raise InvalidArgument(refusal)
        _log.error("%s", refusal)


class UnansweredCalls:
    """Logs an error once for each task whose calls nothing runs, in a program that makes calls of the task.

    Such a program does not raise as `check_tasks` does: the module that calls `migrate` must not do I/O when it is
    imported, and Celery's broker keeps the call until a worker of Celery runs. So the check begins with the first call
    of a task that is routed to Tickwheel and stays with Celery, in a thread, because the call must not wait for it.
    """

    def __init__(self, celery: Any) -> None:
        self._celery = celery
        self._lock = threading.Lock()
        # The tasks that are not checked yet, with the reasons why they stay.
        self._reasons: dict[str, str] = {}
        self._thread: threading.Thread | None = None

    def check(self, task: str, reason: str) -> None:
        """Check in a thread whether a worker of Celery answers."""
        with self._lock:
            self._reasons[task] = reason
            # A forked process has no thread.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="tickwheel-celery-workers", daemon=True)
                # The host may have no resources for another thread, or the program ends. The call must not fail.
                with suppress(RuntimeError):
                    self._thread.start()

    def _run(self) -> None:
        while reasons := self._take():
            if not _answers(self._celery):
                _log.error(
                    "no worker of Celery answers, so nothing runs the calls of these tasks, which are routed to"
                    " Tickwheel but stay with Celery: %s; start a worker of Celery, or %s",
                    "; ".join(f"{name} ({reason})" for name, reason in sorted(reasons.items())),
                    advice(reasons),
                )

    def _take(self) -> dict[str, str]:
        """Return the tasks to check now. If there are none, the thread ends."""
        with self._lock:
            reasons, self._reasons = self._reasons, {}
            if not reasons:
                self._thread = None
            return reasons


def _routed(routes: Mapping[str, Route]) -> set[str]:
    """Return the tasks of which some calls go to Tickwheel."""
    return {name for name, route in routes.items() if (route.share if route.to == TICKWHEEL else 1 - route.share) > 0}


def _answers(celery: Any) -> bool:
    for _ in range(_PINGS):
        try:
            if celery.control.ping(timeout=_PING_S):
                return True
        except Exception as error:
            _log.warning("cannot ask whether a worker of Celery runs: %s", error)
            return False
    return False
