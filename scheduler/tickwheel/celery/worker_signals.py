"""The signals that a Celery worker sends at the start and at the end of its processes."""

import os
import socket
from typing import Any, Final

from celery import signals

from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.middleware import Middleware

# The name of this worker in Celery's signals, events and requests.
HOSTNAME: Final = f"tickwheel@{socket.gethostname()}"


class WorkerSender:
    """The sender of the signal `worker_init` and the instance of `celeryd_init`, with the attributes of Celery's worker
    that receivers read.

    Two senders are never equal, and a sender can be hashed and weakly referenced: Celery caches receivers by sender.
    """

    # Not prefork: with this pool, Celery's Django integration also closes the pools of connections after each task.
    pool_cls = "solo"
    # As in Celery's worker, which creates these two after the signal.
    pool = None
    consumer = None

    def __init__(self, celery: Any) -> None:
        self.app = celery
        self.hostname = HOSTNAME
        self.concurrency = 1

    def __repr__(self) -> str:
        return f"<Worker: {self.hostname} of Tickwheel>"


class WorkerSignals(Middleware):
    """Sends the signals of one process."""

    def __init__(self, celery: Any) -> None:
        self._celery = celery
        # The receivers may refer to the sender weakly, and use it until the process ends.
        self._sender = WorkerSender(celery)

    def startup(self, app: TaskApp) -> None:
        signals.celeryd_init.send(sender=HOSTNAME, instance=self._sender, conf=self._celery.conf, options={})
        signals.worker_init.send(sender=self._sender)
        self._celery.loader.init_worker_process()
        signals.worker_process_init.send(sender=HOSTNAME)

    def shutdown(self, app: TaskApp) -> None:
        signals.worker_process_shutdown.send(sender=HOSTNAME, pid=os.getpid(), exitcode=0)
