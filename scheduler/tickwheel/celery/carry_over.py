"""Decides which tasks of a Celery app stay with Celery, because a Tickwheel worker would not keep all their settings.

A worker cannot have some tasks at all, because Tickwheel does not allow their name or their queue. They stay, too.

The page on the migration has a table of all settings of a task, and of what becomes of each.
"""

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from tickwheel.celery.queue_names import advise_mapping, own_tasks, queue_name, queue_of_task
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.celery_routes import TICKWHEEL, Route
from tickwheel.tasks.task import NAME_BYTES, TIME_LIMIT_MS_MAX

_log = logging.getLogger("tickwheel.celery")
# The classes of Celery's worker that handle a message before its task runs. Some tasks name others.
_OWN_CLASSES: Final = {"Strategy": "celery.worker.strategy:default", "Request": "celery.worker.request:Request"}
# How long Celery's workers have to answer, in seconds, and how often they are asked.
_PING_S: Final = 1.0
_PINGS: Final = 3
_LONGEST_LIMIT: Final = timedelta(milliseconds=TIME_LIMIT_MS_MAX)


@dataclass(frozen=True, slots=True)
class Stay:
    """Why the calls of a task stay with Celery. ``remedy`` routes them; without a remedy, ``carries_over`` does."""

    reason: str
    remedy: str = ""


def check_names(carries_over: object) -> frozenset[str]:
    """Return the names of tasks that go to Tickwheel although it ignores some of their settings.

    Raises InvalidArgument.
    """
    if isinstance(carries_over, str) or not isinstance(carries_over, Iterable):
        raise InvalidArgument(f"carries_over must be a set of task names, not {validation.preview(carries_over)}")
    return frozenset(
        validation.text("a task of carries_over", name, 1_000, minimum=1).decode() for name in carries_over
    )


def why_task_stays(task: Any, app: TaskApp, queues: Mapping[str, str], carries_over: Collection[str]) -> Stay | None:
    """Return why the calls of a task stay with Celery, or None."""
    return ignored_setting(task, carries_over) or why_not_declared(task, app, queues)


def ignored_setting(task: Any, carries_over: Collection[str]) -> Stay | None:
    """Return why the settings of a task keep its calls with Celery, unless the task is in ``carries_over``, or None."""
    reason = None if task.name in carries_over else _name_ignored_setting(task)
    return None if reason is None else Stay(reason)


def _name_ignored_setting(task: Any) -> str | None:
    if task.rate_limit:
        return f"it has the rate_limit {task.rate_limit}"
    for name, default in _OWN_CLASSES.items():
        if (own := getattr(task, name, default)) != default:
            return f"it has its own {name}, {getattr(own, '__qualname__', own)}"
    if task.acks_late and task.time_limit and _repeats_after_timeout(task):
        return "it has acks_on_timeout=False, so it is run again after a time limit"
    limit = _limit_s(task)
    if limit > _LONGEST_LIMIT.total_seconds():
        return f"it has a time limit of {limit:,.0f} s, and Tickwheel allows at most {_LONGEST_LIMIT.days} days"
    return None


def why_not_declared(task: Any, app: TaskApp, queues: Mapping[str, str]) -> Stay | None:
    """Return why workers of Tickwheel do not have the task, or None: Tickwheel does not allow its name or its queue."""
    try:
        validation.text("a task's name", task.name, NAME_BYTES, minimum=1, nul=False)
    except InvalidArgument as error:
        return Stay(str(error), "give the task another name")
    try:
        celery_queue = queue_of_task(task.app, task)
    except Exception:
        # A router of the application can need the arguments of a call. Then only the queue of each call counts.
        return None
    try:
        queue_name(celery_queue, queues, app)
    except InvalidArgument as error:
        return Stay(f"its queue cannot move: {error}", advise_mapping(celery_queue))
    return None


def time_limit_of(task: Any) -> timedelta:
    """Return the time limit of a task in a Tickwheel worker: the longest one if the task has a longer one, or none."""
    longest = _LONGEST_LIMIT.total_seconds()
    return timedelta(seconds=min(_limit_s(task) or longest, longest))


def _limit_s(task: Any) -> float:
    return float(task.time_limit or task.app.conf.task_time_limit or 0)


def _repeats_after_timeout(task: Any) -> bool:
    on_timeout = getattr(task, "acks_on_timeout", None)
    return (task.acks_on_failure_or_timeout if on_timeout is None else on_timeout) is False


def advice(stays: Mapping[str, Stay]) -> str:
    """Return how to route the tasks nevertheless."""
    names = sorted(name for name, stay in stays.items() if not stay.remedy)
    which = "it without this setting" if len(names) == 1 else "them without these settings"
    remedies = [f"to route {which}, pass migrate(…, carries_over={{{', '.join(map(repr, names))}}})"] if names else []
    return ", or ".join(dict.fromkeys([*remedies, *(stay.remedy for stay in stays.values() if stay.remedy)]))


def explain_stay(
    celery: Any, app: TaskApp, queues: Mapping[str, str], carries_over: Collection[str], name: str
) -> str | None:
    """Return the reason why the calls of the task of this name stay with Celery, and the remedy, or None."""
    task = celery.tasks.get(name)
    stay = None if task is None else why_task_stays(task, app, queues, carries_over)
    return None if stay is None else f"{stay.reason}; {advice({name: stay})}"


def check_tasks(
    celery: Any, app: TaskApp, queues: Mapping[str, str], carries_over: Collection[str], is_restart: bool
) -> None:
    """Log the tasks that stay with Celery.

    Raises InvalidArgument if a route sends calls of such a task to Tickwheel, and no worker of Celery answers: with an
    earlier version, these calls ran in Tickwheel, and now nothing would run them. With ``is_restart``, do nothing:
    the first process of the worker has passed this check, and the other tasks must run while Celery's workers are down.
    """
    if is_restart:
        return
    if unknown := sorted(set(carries_over) - set(celery.tasks)):
        _log.warning("carries_over names tasks that the Celery app does not have: %s", ", ".join(unknown))
    found = ((task.name, why_task_stays(task, app, queues, carries_over)) for task in own_tasks(celery))
    stays = {name: stay for name, stay in found if stay is not None}
    if not stays:
        return
    _log.warning("these tasks stay with Celery, whatever their routes: %s", _listed(stays))
    routed = sorted(stays.keys() & _routed(app.routes()))
    if routed and not _answers(celery):
        name, stay = routed[0], stays[routed[0]]
        raise InvalidArgument(
            f"task {name!r} is routed to Tickwheel, but stays with Celery: {stay.reason}. No worker of Celery answers,"
            f" so nothing would run its calls: {advice({name: stay})}, or start a worker of Celery, or remove the route"
            f" by `tickwheel route unset {name}`"
        )


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
        self._reasons: dict[str, Stay] = {}
        self._thread: threading.Thread | None = None

    def check(self, task: str, reason: Stay) -> None:
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
                    _listed(reasons),
                    advice(reasons),
                )

    def _take(self) -> dict[str, Stay]:
        """Return the tasks to check now. If there are none, the thread ends."""
        with self._lock:
            reasons, self._reasons = self._reasons, {}
            if not reasons:
                self._thread = None
            return reasons


def _listed(stays: Mapping[str, Stay]) -> str:
    return "; ".join(f"{name} ({stay.reason})" for name, stay in sorted(stays.items()))


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
