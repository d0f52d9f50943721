"""The log of queues that are blocked for dequeue: one line when a queue becomes blocked, one when it is unblocked."""

import logging
import threading

from tickwheel.errors import QueueBlocked, QueueNotFound
from tickwheel.runtime.log_fields import log_fields

_log = logging.getLogger("tickwheel.worker")


class BlockedQueues:
    """The blocked queues, as the consumers of one process find them. Thread-safe."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def observe(self, queue: str, error: QueueBlocked | QueueNotFound | None) -> None:
        """Record the error of a dequeue from the queue, or that there was none."""
        if isinstance(error, QueueBlocked):
            self._block(queue, error)
        elif error is None:
            self._unblock(queue)

    def _block(self, queue: str, reason: Exception) -> None:
        """Record that a queue is blocked. Log this if the queue was not blocked before."""
        if queue in self._names:
            return
        with self._lock:
            is_new = queue not in self._names
            self._names.add(queue)
        if is_new:
            extra = log_fields("queue blocked", queue=queue)
            _log.warning("%s; its messages wait", reason, extra=extra)

    def _unblock(self, queue: str) -> None:
        """Record that a dequeue from the queue was not refused. Log this if the queue was blocked before."""
        if queue not in self._names:
            return
        with self._lock:
            was_blocked = queue in self._names
            self._names.discard(queue)
        if was_blocked:
            _log.info(
                "queue %r is no longer blocked: taking its messages",
                queue,
                extra=log_fields("queue unblocked", queue=queue),
            )
