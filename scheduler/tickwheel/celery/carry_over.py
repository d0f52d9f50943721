"""Decides which tasks of a Celery app stay with Celery, because a Tickwheel worker would not keep all their settings.

The page on the migration has a table of all settings of a task, and of what becomes of each.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

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


def advice(names: Iterable[str]) -> str:
    """Return how to route the tasks nevertheless."""
    return f"to route it without this setting, pass migrate(…, carries_over={set(names)!r})"


def check_tasks(celery: Any, app: TaskApp, tasks: Iterable[Any], carries_over: Collection[str]) -> None:
    """Log the tasks that stay with Celery.

    Raises InvalidArgument if a route sends calls of such a task to Tickwheel, and no worker of Celery answers: with an
    earlier version, these calls ran in Tickwheel, and now nothing would run them. A process that the worker has
    restarted only logs this, because the other tasks must run while Celery's workers are down.
    """
    reasons = {task.name: reason for task in tasks if (reason := why_task_stays(task, carries_over))}
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
        if not app._is_restarted:
            raise InvalidArgument(refusal)
        _log.error("%s", refusal)


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
