"""Logs that a queue of the worker was deleted, or created, also with other settings, from a thread of its own.

The consumers do not notice this while they are idle: they wait for announcements. For them, a queue that was deleted is
empty, because the next message may create it again.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from tickwheel.client import Queue, Tickwheel
from tickwheel.errors import QueueConfigConflict, QueueNotFound, TickwheelError
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.queue_config_update import check_immutable
from tickwheel.runtime.log_fields import log_fields
from tickwheel.worker.blocked_queues import BlockedQueues

# Pause between two checks, in seconds. A check is one call for each queue.
CHECK_S: Final = 30.0

_log = logging.getLogger("tickwheel.worker")


class QueueAlarm:
    """Checks the queues of a worker, from `start` until `stop`.

    ``blocked_queues`` has the reports of the processes, and logs them.
    """

    def __init__(self) -> None:
        self.blocked_queues = BlockedQueues()
        # By queue: its number, which a queue of the same name does not have again; None while the queue does not exist.
        self._numbers: dict[str, int | None] = {}
        self._stopping = threading.Event()

    def start(self, client: Tickwheel, queues: Sequence[str], immutable: Mapping[str, Mapping[str, Any]]) -> None:
        """Start the thread. It ends after `stop`, or with the program.

        ``immutable`` has the declared settings of each queue that never change (`IMMUTABLE_SETTINGS`).
        """
        thread = threading.Thread(
            target=self._check_until_stopped,
            args=(client, queues, immutable),
            name="tickwheel-queue-alarm",
            daemon=True,
        )
        # The host may have no resources for another thread. The worker needs only its other threads.
        with suppress(RuntimeError):
            thread.start()

    def stop(self) -> None:
        """Ask the thread to end. A check that has begun may fail, because its client is closed."""
        self._stopping.set()

    def _check_until_stopped(
        self, client: Tickwheel, queues: Sequence[str], immutable: Mapping[str, Mapping[str, Any]]
    ) -> None:
        while not self._stopping.is_set():
            for queue in queues:
                # Other threads log that the server cannot be reached.
                with suppress(TickwheelError):
                    self._check(client.queue(queue), immutable[queue])
            self._stopping.wait(CHECK_S)

    def _check(self, queue: Queue, immutable: Mapping[str, Any]) -> None:
        config: QueueConfig | None = None
        with suppress(QueueNotFound):
            config = queue.config()
        self._log_change(queue, None if config is None else config.number)
        if config is not None and not self._stopping.is_set():
            _log_conflict(queue, config, immutable)

    def _log_change(self, queue: Queue, number: int | None) -> None:
        before = self._numbers.get(queue.name, number)
        self._numbers[queue.name] = number
        if number == before or self._stopping.is_set():
            return
        if before is not None:
            text = "queue %r was deleted, with its messages: the worker takes messages again if the queue is created"
            _log.warning(text, queue.name, extra=log_fields("queue deleted", queue=queue.name))
        if number is not None:
            _log.info(
                "queue %r was created: taking its messages",
                queue.name,
                extra=log_fields("queue created", queue=queue.name),
            )


def _log_conflict(queue: Queue, config: QueueConfig, immutable: Mapping[str, Any]) -> None:
    """Log an error if another program has created the queue without the settings that the app declares."""
    # The report of the worker process has lists instead of tuples.
    declared: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in immutable.items()
    }
    try:
        check_immutable(queue.name, config, replace(config, **declared))
    except QueueConfigConflict as error:
        _log.error(
            "the worker takes messages of a queue that another program has created with other settings: %s",
            error,
            extra=log_fields("queue conflict", queue=queue.name),
        )
