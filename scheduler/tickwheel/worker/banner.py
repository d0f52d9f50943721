"""The first lines of a worker's log: what runs, where, for which queues and tasks, and who drives the timing wheel.

If tasks of Celery have no routes, a warning follows.
"""

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tickwheel import __version__
from tickwheel.client import Tickwheel
from tickwheel.client.admin import Admin
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import TickwheelError
from tickwheel.runtime.log_fields import log_fields
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.celery_routes import list_routed_tasks
from tickwheel.worker.ipc import Ready

if TYPE_CHECKING:
    from tickwheel.worker.process import ProcessConfig

# The maximum number of names on a line.
_NAMES: Final = 50


def log_start(handler: logging.Handler, config: "ProcessConfig", report: Ready, app: TaskApp) -> None:
    """Log the banner, and a warning if no task of Celery has a route.

    The first process of a worker does this before it takes a message, so no line about a task comes first.
    """
    log = independent_log(handler)
    _log_banner(log, config, report, app.tickwheel)
    _warn_about_missing_routes(log, app)


def independent_log(handler: logging.Handler) -> logging.Logger:
    """Return a log of the worker whose lines go to the ``handler`` of the program alone, whatever the app has done to
    the loggers: some apps disable all of them.
    """
    log = logging.Logger("tickwheel.worker")
    log.addHandler(handler)
    return log


def _log_banner(log: logging.Logger, config: "ProcessConfig", report: Ready, client: Tickwheel) -> None:
    """Log the banner. With JSON, the first line has all of it as fields."""
    settings = Admin(client).settings
    driver = describe_driver(settings, drives=config.drives)
    extra = log_fields(
        "working",
        version=__version__,
        app=config.app,
        url=settings.display_url,
        namespace=settings.namespace,
        processes=config.processes,
        lanes=config.consumers,
        queues=report.queues,
        weights=report.weights,
        selector=config.selector,
        tasks=report.tasks,
        driver=driver,
    )
    log.info("tickwheel %s, worker of %s: %s", __version__, config.app, _concurrency(config), extra=extra)
    if config.json:
        return
    queues = [f"{name} (weight {weight})" for name, weight in zip(report.queues, report.weights, strict=False)]
    for title, text in (
        ("server", f"{settings.display_url}, namespace {settings.namespace}"),
        ("timing wheel", driver),
        (_counted(len(report.queues), "queue"), f"{_joined(queues or report.queues)}; selector {config.selector}"),
        (_counted(len(report.tasks), "task"), _joined(sorted(report.tasks))),
    ):
        log.info("%s: %s", title, text)


def _warn_about_missing_routes(log: logging.Logger, app: TaskApp) -> None:
    """Log a warning if the app runs tasks of Celery without a route: the server may have lost its data."""
    # Routes have no effect on the tasks that stay with Celery.
    names = {name for name in app._celery_tasks if app._why_task_stays(name) is None}
    # The worker can run without this answer. A token may not read settings, or the server may be slow.
    with suppress(TickwheelError):
        if names and names.isdisjoint(list_routed_tasks(app.tickwheel)):
            log.warning(
                "no task of Celery has a route, so all calls of these tasks go to Celery: %s. Set routes by `tickwheel"
                " route set TASK --to tickwheel`. If the tasks had routes, the namespace has lost them",
                _joined(sorted(names)),
                extra=log_fields("no routes", tasks=sorted(names)),
            )


def _concurrency(config: "ProcessConfig") -> str:
    count = config.processes
    if count * config.consumers == 1:
        return "1 process, 1 task at a time"
    threads = "" if config.consumers == 1 else f" with {config.consumers} threads each"
    return f"{_counted(count, 'process', 'processes')}{threads}, {count * config.consumers} tasks at a time"


def describe_driver(settings: ClientSettings, *, drives: bool) -> str:
    """Return who drives the timing wheel. ``drives``: this worker does if nobody else does, and if it can."""
    if settings.url is None:
        own = "a child process of this worker, or by " if drives else ""
        return f"driven by {own}another program of the data directory"
    if settings.is_service:
        return "driven by event processes behind the service, or by the service itself if this is its own namespace"
    if drives and settings.uses_lease_election:
        return (
            "driven by event processes (tickwheel events), or by a child process of a worker or a service while there"
            " are none"
        )
    return "driven by event processes (tickwheel events), not by this worker"


def _counted(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def _joined(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return (", ".join(names[:_NAMES]) or "none") + more
