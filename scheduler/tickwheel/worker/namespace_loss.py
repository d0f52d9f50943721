"""The loss of the worker's namespace: its server has lost all data, or the namespace was deleted or recreated.

A worker then finishes the tasks that it runs, and ends. It does not create the namespace again: the operator, or the
program that starts the worker again, decides this.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from tickwheel.errors import NamespaceGone, NamespaceNotFound
from tickwheel.runtime.log_fields import log_fields
from tickwheel.worker.ipc import NamespaceLost, ReportWriter

_log = logging.getLogger("tickwheel.worker")
# NamespaceNotFound: for a process that has not opened the namespace yet, and may not create it.
NAMESPACE_ERRORS: Final = (NamespaceGone, NamespaceNotFound)


def report_namespace_loss(reports: ReportWriter, stopping: threading.Event, error: Exception) -> None:
    """Report the loss to the supervisor, and stop the process. Running tasks finish, and others are not started."""
    reports.send(NamespaceLost(str(error)))
    stopping.set()


class NamespaceLoss:
    """Whether the namespace is lost, in the supervisor. Thread-safe."""

    def __init__(self, drain_s: float, stop: Callable[[], None]) -> None:
        """``stop`` stops the worker: running tasks have ``drain_s`` seconds."""
        self._drain_s = drain_s
        self._stop = stop
        self._lock = threading.Lock()
        self.is_known = False

    def record(self, reason: str) -> None:
        """Log the first report of the loss, and stop the worker. Further calls do nothing."""
        with self._lock:
            is_first, self.is_known = not self.is_known, True
        if not is_first:
            return
        _log.error(
            "the namespace no longer exists as this worker has opened it: the server has lost its data or is another"
            " one, or the namespace was deleted or recreated. Running tasks have %g s, then the worker ends with exit"
            " code 1. Restore the data, or start the worker again: it then creates a missing namespace",
            self._drain_s,
            extra=log_fields("namespace lost", reason=reason, drain_s=self._drain_s),
        )
        self._stop()
