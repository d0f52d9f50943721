"""The queues that a worker process cannot create when it starts, because the server is at its memory limit.

The process works on its other queues meanwhile, because this can empty the server.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Final

from tickwheel.errors import OutOfMemory, TickwheelError, Unavailable
from tickwheel.runtime.log_fields import log_fields
from tickwheel.runtime.log_throttle import LogThrottle
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
    throttle = LogThrottle()
    while names and not stopping.wait(_RETRY_S):
        # A queue that cannot be created must not keep the others from being created.
        names = [name for name in names if stopping.is_set() or not _is_created(clients, name, throttle)]


def _is_created(clients: ClientGroup, name: str, throttle: LogThrottle) -> bool:
    """Create or update the queue. Return False if this is not possible now."""
    try:
        clients.ensure_queue(name)
    except (OutOfMemory, Unavailable):
        # The start has logged the first, and other threads log that the server cannot be reached.
        return False
    except TickwheelError as error:
        text = f"cannot create queue {name!r}, and tries again: {error}"
        _log.log(throttle.level(text), "%s", text, extra=log_fields("queue not created", queue=name))
        return False
    # The supervisor logs that a queue was created.
    return True
