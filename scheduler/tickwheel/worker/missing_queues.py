"""The queues that a worker process cannot create when it starts, because the server is at its memory limit.

The process works on its other queues meanwhile, because this can empty the server.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tickwheel.errors import OutOfMemory, TickwheelError
from tickwheel.runtime.log_fields import log_fields
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.client_group import ClientGroup

_RETRY_S: Final = 30.0

_log = logging.getLogger("tickwheel.worker")


def create_queues(app: TaskApp, names: Sequence[str], *, is_restart: bool) -> list[str]:
    """Create or update the queues of the app. Return those that the server has no memory for.

    Raises OutOfMemory if it has none for any of them: then the worker has nothing to do.
    """
    missing = []
    for name in names:
        try:
            app.declared(name)
        except OutOfMemory as error:
            missing.append(name)
            if len(missing) == len(names):
                raise
            if not is_restart:
                text = "cannot create queue %r now, and tries again: the worker takes messages of its other queues: %s"
                _log.warning(text, name, error, extra=log_fields("queue not created", queue=name))
    return missing


def create_later(clients: ClientGroup, names: Sequence[str], stopping: threading.Event) -> None:
    """Start a thread that creates the queues once the server has memory for them. It ends with the process."""
    if names:
        threading.Thread(
            target=_create, args=(clients, list(names), stopping), name="tickwheel-missing-queues", daemon=True
        ).start()


def _create(clients: ClientGroup, names: list[str], stopping: threading.Event) -> None:
    while names and not stopping.wait(_RETRY_S):
        # Other threads log that the server cannot be reached. The supervisor logs that a queue was created.
        with suppress(TickwheelError):
            clients.ensure_queue(names[0])
            names.pop(0)
