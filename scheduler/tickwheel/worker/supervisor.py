"""Starts the worker processes, watches over them, and ends them. It imports nothing of the app: nothing of it can hang
or crash the one that has to notice.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import msgspec

from tickwheel.client import Tickwheel
from tickwheel.runtime.log_fields import fields
from tickwheel.worker.ipc import Ready
from tickwheel.worker.lease_renewer import Keeper
from tickwheel.worker.process import CANNOT_START, RECYCLE, Orders
from tickwheel.worker.shared_state import Board
from tickwheel.worker.stats import Stats

_log = logging.getLogger("tickwheel.worker")
_TICK_S: Final = 0.1
# A task that does not heed its time limit, as it is outside of the interpreter, is killed so much later.
_GRACE_S: Final = 2.0
# Waits before a process that died is started again, doubling up to the last; one that lived this long died by chance.
_AGAIN_S: Final = (0.1, 10.0)
_LONG_LIFE_S: Final = 30.0
# What is not done by then is tried again, or left to the end of the lease.
_TIMEOUT: Final = timedelta(seconds=5)
# Renewals at once, of all processes: each may have a connection, of which a process has 1,024 with other files.
_CALLS: Final = 128
_STOPPED: Final = "the worker was stopped"


@dataclass(slots=True)
class _Process:
    popen: subprocess.Popen[bytes]
    input: int
    board: Board
    keeper: Keeper
    started: float
    killed_for: str = ""
    # Page, slot, and since when: the task that it was killed for; and those that the last look found over their limits.
    guilty: tuple[int, int, float] | None = None
    overdue: frozenset[tuple[int, int, float]] = frozenset()


class Supervisor:
    """Runs ``count`` processes that follow ``orders``, until `stop`."""

    def __init__(self, orders: Orders, count: int, stats: Stats) -> None:
        self._orders = orders
        self._count = count
        self._stats = stats
        self._processes: list[_Process | None] = [None] * count
        self._begun: set[int] = set()
        self._again_at = [0.0] * count
        self._pauses = [_AGAIN_S[0]] * count
        self._client: Tickwheel | None = None
        self._lock = threading.Lock()
        self._stops = 0
        self._told = 0
        self._ends_at = float("inf")
        self._wake = threading.Event()
        self._calls = ThreadPoolExecutor(_CALLS, thread_name_prefix="tickwheel-renewal")

    def stop(self) -> None:
        """End after the tasks that run, or when the time to drain is over; called again: at once. From any thread."""
        self._stops += 1
        self._wake.set()

    def run(self) -> int:
        """Its exit code: 0; 2 where what was said of the app and its queues is wrong, so that no process can start."""
        code = 0
        try:
            while self._stops == 0 or any(self._processes):
                self._obey()
                for n in range(self._count):
                    if self._look(n) == CANNOT_START and not code:
                        code = 2
                        self.stop()
                self._wake.wait(_TICK_S)
                self._wake.clear()
        finally:
            self._kill_all(_STOPPED)
            for n in range(self._count):
                self._bury(n)
            self._calls.shutdown()
            if self._client is not None:
                self._client.close()
        return code

    def _obey(self) -> None:
        if self._stops > 0 and self._told == 0:
            self._told = 1
            self._ends_at = time.monotonic() + self._orders.drain_s
            for process in filter(None, self._processes):
                process.popen.send_signal(signal.SIGTERM)
            drain_s = self._orders.drain_s
            extra = fields("ending", drain_s=drain_s)
            _log.info("ending: tasks that run have %g s; a second signal ends them at once", drain_s, extra=extra)
        if self._told == 1 and (self._stops > 1 or time.monotonic() > self._ends_at):
            self._told = 2
            self._kill_all(_STOPPED)

    def _kill_all(self, reason: str) -> None:
        for process in filter(None, self._processes):
            process.killed_for = process.killed_for or reason
            _kill(process.popen)

    def _look(self, n: int) -> int | None:
        """Start a process that is to run, or see to one that has ended: CANNOT_START where that has no use."""
        process = self._processes[n]
        now = time.monotonic()
        if process is None:
            if self._stops == 0 and now >= self._again_at[n]:
                try:
                    self._processes[n] = self._start(n)
                except OSError as error:
                    self._again_at[n] = now + _AGAIN_S[1]
                    extra = fields("process not started", reason=str(error), again_in_s=_AGAIN_S[1])
                    _log.error("no process can be started: %s; again in %.1f s", error, _AGAIN_S[1], extra=extra)
            return None
        if process.popen.poll() is None:
            self._look_at_limits(process, now)
            return None
        return self._bury(n)

    def _look_at_limits(self, process: _Process, now: float) -> None:
        if now - process.keeper.hung_up_at > _GRACE_S and not process.killed_for:
            process.killed_for = (
                "its worker process had closed or misused the pipe by which it is watched, and was killed"
            )
            _kill(process.popen)
        found = frozenset(
            (index, *overdue)
            for index, page in enumerate(process.board.pages)
            if (overdue := page.overdue(now - _GRACE_S)) is not None
        )
        if (guilty := min(found & process.overdue, default=None)) and not process.killed_for:
            process.killed_for = "over its time limit, which it did not heed: its worker process was killed"
            process.guilty = guilty
            self._stats.killed()
            _kill(process.popen)
        process.overdue = found

    def _start(self, n: int) -> _Process:
        with ExitStack() as undo, ExitStack() as handed_over:
            board = Board(self._orders.lanes)
            undo.callback(board.close)
            notes, theirs = os.pipe()
            undo.callback(os.close, notes)
            handed_over.callback(os.close, theirs)
            their_input, ours = os.pipe()
            undo.callback(os.close, ours)
            handed_over.callback(os.close, their_input)
            orders = msgspec.structs.replace(self._orders, board_fd=board.fd, notes_fd=theirs)
            popen = subprocess.Popen(
                [sys.executable, "-m", "tickwheel.worker.process"],
                stdin=their_input,
                pass_fds=(board.fd, theirs),
                # A signal of the terminal is for the supervisor: it tells them.
                start_new_session=True,
            )
            undo.pop_all()
        # Not as an argument, which every user of the host can read: there may be a password in it. Whether it has died
        # by now is seen soon.
        with suppress(BrokenPipeError):
            os.write(ours, msgspec.json.encode(orders) + b"\n")
        stats = self._stats
        keeper = Keeper(board, notes, self._ready, stats.ran, stats.renewed, stats.recurred, self._calls)
        self._stats.started(n in self._begun)
        self._begun.add(n)
        return _Process(popen, ours, board, keeper, time.monotonic())

    def _ready(self, note: Ready) -> Tickwheel:
        with self._lock:
            if self._client is None:
                # With an embedded server it turns the wheel, too.
                self._client = Tickwheel(**{**note.where, "drive": None, "timeout": _TIMEOUT})
                _log.info(
                    "%d processes of %d lanes; queues %s; %d tasks",
                    self._count, self._orders.lanes, ", ".join(note.queues), len(note.tasks),
                    extra=fields("working", processes=self._count, lanes=self._orders.lanes, queues=note.queues),
                )  # fmt: skip
            return self._client

    def _bury(self, n: int) -> int | None:
        process = self._processes[n]
        if process is None:
            return None
        self._processes[n] = None
        code = process.popen.wait()
        os.close(process.input)
        was_ready = process.keeper.is_ready
        epitaph, guilty = process.killed_for or _epitaph(code), process.guilty
        if code not in (0, RECYCLE):
            # What its tasks have started: they will be run anew.
            _kill(process.popen)
        # Where nobody knows which task it was, it may have been any that ran.
        process.keeper.bury(
            epitaph,
            lambda page, slot: epitaph != _STOPPED and (guilty is None or guilty[:2] == (page, slot)),
        )
        self._stats.ended()
        if code in (0, RECYCLE):
            self._pauses[n] = _AGAIN_S[0]
            return None
        if not was_ready and self._client is None and self._stops == 0 and code > 0:
            return CANNOT_START
        if self._stops == 0:
            if time.monotonic() - process.started > _LONG_LIFE_S:
                self._pauses[n] = _AGAIN_S[0]
            self._again_at[n] = time.monotonic() + self._pauses[n]
            pid, pause_s = process.popen.pid, self._pauses[n]
            extra = fields("process ended", pid=pid, reason=epitaph, again_in_s=pause_s)
            _log.error("worker process %d: %s; another follows in %.1f s", pid, epitaph, pause_s, extra=extra)
            self._pauses[n] = min(self._pauses[n] * 2, _AGAIN_S[1])
        return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End it at once, and what it has started: it leads a group of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _epitaph(code: int) -> str:
    if code < 0:
        return f"its worker process was ended by {signal.Signals(-code).name}"
    return f"its worker process ended with code {code}"
