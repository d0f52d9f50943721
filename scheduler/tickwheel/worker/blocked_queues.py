"""The log of queues that are blocked for dequeue: one line when a queue becomes blocked, one when it is unblocked.

The processes of a worker report what their consumers find, and the supervisor logs it once for the worker.
"""

import logging
import threading
from collections.abc import Callable

from tickwheel.errors import QueueBlocked, QueueNotFound
from tickwheel.runtime.log_fields import log_fields
from tickwheel.worker.ipc import QueueBlock

_log = logging.getLogger("tickwheel.worker")


class QueueBlocks:
    """The blocked queues, as the consumers of one process find them. Thread-safe."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def observe(
        self, queue: str, error: QueueBlocked | QueueNotFound | None, report: Callable[[QueueBlock], object]
    ) -> None:
        """Record the error of a dequeue from the queue, or that there was none. Report a change."""
        if isinstance(error, QueueNotFound) or (error is not None) == (queue in self._names):
            return
        with self._lock:
            # Reports are sent with the lock, in the order of the changes.
            if error is not None and queue not in self._names:
                self._names.add(queue)
                report(QueueBlock(queue, str(error)))
            elif error is None and queue in self._names:
                self._names.discard(queue)
                report(QueueBlock(queue, ""))


class BlockedQueues:
    """The blocked queues of a worker, as its processes report them. Thread-safe."""

    def __init__(self) -> None:
        # The processes that have found the queue blocked since it was last found unblocked.
        self._processes: dict[str, set[object]] = {}
        self._lock = threading.Lock()

    def record(self, process: object, report: QueueBlock) -> None:
        """Take over the report of a process. Log a queue that was not blocked before, or no longer is."""
        with self._lock:
            was_blocked = report.queue in self._processes
            if report.reason:
                self._processes.setdefault(report.queue, set()).add(process)
            else:
                self._processes.pop(report.queue, None)
        if report.reason and not was_blocked:
            extra = log_fields("queue blocked", queue=report.queue)
            _log.warning("%s; its messages wait", report.reason, extra=extra)
        elif was_blocked and not report.reason:
            _log.info(
                "queue %r is no longer blocked: taking its messages",
                report.queue,
                extra=log_fields("queue unblocked", queue=report.queue),
            )

    def forget(self, process: object) -> None:
        """Forget what a process has reported that has ended. Nobody else may notice the end of a block."""
        with self._lock:
            for processes in self._processes.values():
                processes.discard(process)
            self._processes = {queue: processes for queue, processes in self._processes.items() if processes}
