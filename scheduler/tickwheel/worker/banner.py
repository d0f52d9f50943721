"""The first lines of a worker's log: what runs, where, for which queues and tasks, and who drives the timing wheel."""

import logging
from typing import Final

from tickwheel import __version__
from tickwheel.client import Tickwheel
from tickwheel.client.admin import Admin
from tickwheel.client.settings import ClientSettings
from tickwheel.runtime.log_fields import log_fields
from tickwheel.worker.ipc import Ready
from tickwheel.worker.process import ProcessConfig

_log = logging.getLogger("tickwheel.worker")
# The maximum number of names on a line.
_NAMES: Final = 50


def log_banner(config: ProcessConfig, count: int, report: Ready, client: Tickwheel) -> None:
    """Log the banner of a worker with ``count`` processes. With JSON, the first line has all of it as fields."""
    settings = Admin(client).settings
    driver = _driver(settings)
    extra = log_fields(
        "working",
        version=__version__,
        app=config.app,
        url=settings.display_url,
        namespace=settings.namespace,
        processes=count,
        lanes=config.consumers,
        queues=report.queues,
        weights=report.weights,
        selector=config.selector,
        tasks=report.tasks,
        driver=driver,
    )
    _log.info("tickwheel %s, worker of %s: %s", __version__, config.app, _concurrency(config, count), extra=extra)
    if config.json:
        return
    queues = [f"{name} (weight {weight})" for name, weight in zip(report.queues, report.weights, strict=False)]
    for title, text in (
        ("server", f"{settings.display_url}, namespace {settings.namespace}"),
        ("timing wheel", driver),
        (_counted(len(report.queues), "queue"), f"{_joined(queues or report.queues)}; selector {config.selector}"),
        (_counted(len(report.tasks), "task"), _joined(sorted(report.tasks))),
    ):
        _log.info("%s: %s", title, text)


def _concurrency(config: ProcessConfig, count: int) -> str:
    if count * config.consumers == 1:
        return "1 process, 1 task at a time"
    threads = "" if config.consumers == 1 else f" with {config.consumers} threads each"
    return f"{_counted(count, 'process', 'processes')}{threads}, {count * config.consumers} tasks at a time"


def _driver(settings: ClientSettings) -> str:
    if settings.drives:
        return "driven by a child process of this worker, or by another program of the data directory"
    if settings.is_service:
        return "driven by the event processes behind the service"
    return "driven by event processes (tickwheel events), not by this worker"


def _counted(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def _joined(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return (", ".join(names[:_NAMES]) or "none") + more
