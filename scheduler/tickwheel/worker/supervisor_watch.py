"""Ends a worker process whose supervisor has ended.

Nobody renews the leases of the process then, and the messages of its tasks are delivered again when these leases end.
So the process ends at the latest when the first lease of a running task ends. Otherwise two workers would run one task,
or two tasks of one exclusive value.
"""

import logging
import os
import signal
import threading
import time
from contextlib import suppress
from typing import Final

from tickwheel.runtime.log_fields import log_fields
from tickwheel.worker.shared_state import SharedState

_log = logging.getLogger("tickwheel.worker")
# The kill comes this time before the end of a lease, because a busy host delays the thread that watches.
MARGIN_S: Final = 0.25
# How often the leases are read again: the process may begin another task, with another lease.
_TICK_S: Final = 0.1
# A log whose reader is stuck must not delay the kill.
_LOG_S: Final = 0.1
DRAINED: Final = "--drain is over"
LEASE_OVER: Final = "the lease of a running task runs out, and the task could run elsewhere at the same time"


class SupervisorWatch:
    """Waits in its own thread for the end of the supervisor, and then ends the process in time."""

    def __init__(self, supervisor: int, shared_state: SharedState, stopping: threading.Event, drain_s: float) -> None:
        """``supervisor`` is the descriptor of a pipe that the supervisor holds open. ``stopping`` stops the process."""
        self._supervisor = supervisor
        self._shared_state = shared_state
        self._stopping = stopping
        self._drain_s = drain_s

    def start(self) -> None:
        threading.Thread(target=self._run, name="tickwheel-supervisor-watch", daemon=True).start()

    def _run(self) -> None:
        while os.read(self._supervisor, 1024):
            pass
        self._stopping.set()
        drained_at = time.monotonic() + self._drain_s
        while not (reason := reason_to_end(now := time.monotonic(), drained_at, self._shared_state.running_until)):
            time.sleep(min(_TICK_S, seconds_left(now, drained_at, self._shared_state.running_until)))
        _log_end(reason)
        # With the programs that tasks have started: the messages of these tasks are delivered again.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


def reason_to_end(now: float, drained_at: float, leased_until: float) -> str:
    """Return why a process without a supervisor must end now, or an empty text.

    All times are those of `time.monotonic`. ``leased_until`` is the end of the first lease of a running task.
    """
    if now >= leased_until - MARGIN_S:
        return LEASE_OVER
    return DRAINED if now >= drained_at else ""


def seconds_left(now: float, drained_at: float, leased_until: float) -> float:
    """Return after how many seconds `reason_to_end` returns a reason, if nothing changes."""
    return max(min(drained_at, leased_until - MARGIN_S) - now, 0.0)


def _log_end(reason: str) -> None:
    pid = os.getpid()

    def log() -> None:
        extra = log_fields("process killed", pid=pid, reason=reason)
        _log.error("worker process %d ends, because its supervisor has ended and %s", pid, reason, extra=extra)

    # The host may have no resources for another thread.
    with suppress(RuntimeError):
        logging_thread = threading.Thread(target=log, name="tickwheel-last-log", daemon=True)
        logging_thread.start()
        logging_thread.join(_LOG_S)
