"""The supervisor of a worker: starts the worker processes, watches them, and stops them.

The supervisor imports nothing of the app. So code of the app can block or crash only the worker processes, and the
supervisor can always react.
"""

import logging
import math
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Final

import msgspec

from tickwheel.client import Tickwheel
from tickwheel.client.exit_codes import ExitCode
from tickwheel.client.last_resort import LastResortOptions
from tickwheel.errors import TickwheelError
from tickwheel.runtime.backoff import Backoff
from tickwheel.runtime.log_fields import log_fields
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.python_command import python_module
from tickwheel.worker.exit_reason import describe_exit, describe_others, exit_reason
from tickwheel.worker.health import WorkerHealth
from tickwheel.worker.ipc import Ready
from tickwheel.worker.last_resort_driver import LastResortDriver
from tickwheel.worker.lease_renewer import LeaseRenewer
from tickwheel.worker.namespace_loss import NamespaceLoss
from tickwheel.worker.orphan_settler import Interruption, settle_after_exit
from tickwheel.worker.process import ProcessConfig
from tickwheel.worker.process_group import kill_group
from tickwheel.worker.queue_alarm import QueueAlarm
from tickwheel.worker.shared_state import SharedState
from tickwheel.worker.stats import Stats
from tickwheel.worker.supervised_process import SupervisedProcess
from tickwheel.worker.time_limit import KILLED_OVER_LIMIT

_log = logging.getLogger("tickwheel.worker")
_TICK_S: Final = 0.1
# A task that runs native code, outside of the interpreter, can ignore its time limit. Its process is killed after this
# grace period.
_GRACE_S: Final = 2.0
# A process that has reported its end is killed after this time. Otherwise a thread or a child process that its app has
# started, and that does not end, would keep it alive. Within this time, libraries can send their last metrics.
_END_S: Final = 10.0
# The first and the longest pause before a process is restarted. The pause doubles with each restart.
_RESTART_BACKOFF_S: Final = (0.1, 10.0)
# If a process has lived longer than this, its back-off starts again from the first pause.
_LONG_LIFE_S: Final = 30.0
# The timeout of calls. A renewal that fails is retried; a message that is not settled waits for the end of its lease.
_TIMEOUT: Final = timedelta(seconds=5)
# The pause between two attempts to open the client.
_OPEN_INTERVAL_S: Final = 5.0
# The maximum number of concurrent renewal calls, for all processes. Each call may use a connection, and a process can
# usually have only 1,024 open files.
_MAX_RENEWAL_CALLS: Final = 128
# The maximum number of ended processes whose messages are settled at the same time.
_MAX_SETTLERS: Final = 32
# The back-off of a task that did nothing wrong: its message can be delivered again immediately.
_AT_ONCE: Final = timedelta(0)
_STOPPED: Final = "the worker was stopped before the task ended"


class Supervisor:
    """Runs ``count`` processes with the same configuration until `stop`. Drives as ``driving`` demands; None: never."""

    def __init__(
        self, config: ProcessConfig, count: int, stats: Stats, driving: LastResortOptions | None = None
    ) -> None:
        self._config = msgspec.structs.replace(config, processes=count, drives=driving is not None)
        self._count = count
        self._timeout = _TIMEOUT if config.timeout_s is None else min(_TIMEOUT, timedelta(seconds=config.timeout_s))
        self._stats = stats
        self._processes: list[SupervisedProcess | None] = [None] * count
        self.health = WorkerHealth(self._processes)
        self._started: set[int] = set()
        self._restart_at = [0.0] * count
        self._backoffs = [Backoff(*_RESTART_BACKOFF_S) for _ in range(count)]
        # Whether a process has started. Then the arguments and the app are valid, and later failures are temporary.
        self._was_ready = False
        self._client: Tickwheel | None = None
        self._driver = LastResortDriver(driving)
        self._queue_alarm = QueueAlarm()
        # The argument of the last `_open_client`, and the earliest time of the next attempt.
        self._ready_report: Ready | None = None
        self._open_at = 0.0
        self._log_throttle = LogThrottle()
        self._lock = threading.Lock()
        self._exit_code = 0
        self._namespace_loss = NamespaceLoss(config.drain_s, self._stop_once)
        self._stops = 0
        self._stop_phase = 0
        self._drain_deadline = float("inf")
        self._wake = threading.Event()
        # The threads that settle the messages of ended processes.
        self._settlers: list[threading.Thread] = []
        self._settler_slots = threading.Semaphore(_MAX_SETTLERS)
        self._executor = ThreadPoolExecutor(_MAX_RENEWAL_CALLS, thread_name_prefix="tickwheel-renewal")

    def stop(self) -> None:
        """Stop when the running tasks have ended, or after the drain time. A second call stops at once. Thread-safe."""
        self._stops += 1
        self._wake.set()

    def _stop_once(self) -> None:
        if self._stops == 0:
            self.stop()

    def run(self) -> int:
        """Run until `stop`, or until the namespace is lost.

        Return the exit code: 0, or that of the first process if no process has ever started, or 1 after the loss.
        """
        try:
            while self._stops == 0 or any(self._processes):
                self.health.on_round()
                self._apply_stop_request()
                for n in range(self._count):
                    self._check_process(n)
                self._retry_client(time.monotonic())
                self._wake.wait(_TICK_S)
                self._wake.clear()
        finally:
            self._kill_all(_STOPPED)
            for n in range(self._count):
                self._reap(n)
            for settler in self._settlers:
                settler.join()
            # A call that could not get a thread is still in the line.
            self._executor.shutdown(cancel_futures=True)
            self._driver.stop()
            self._queue_alarm.stop()
            if self._client is not None:
                self._client.close()
        return ExitCode.REFUSED if self._namespace_loss.is_known else self._exit_code

    def _apply_stop_request(self) -> None:
        if self._stops > 0 and self._stop_phase == 0:
            self._stop_phase = 1
            self._drain_deadline = time.monotonic() + self._config.drain_s
            self._driver.begin_stop()
            for process in filter(None, self._processes):
                process.popen.send_signal(signal.SIGTERM)
            if not self._namespace_loss.is_known:
                drain_s, extra = self._config.drain_s, log_fields("ending", drain_s=self._config.drain_s)
                text = "stopping: running tasks have %g s; a second signal stops them immediately"
                _log.info(text, drain_s, extra=extra)
        if self._stop_phase == 1 and (self._stops > 1 or time.monotonic() > self._drain_deadline):
            self._stop_phase = 2
            self._kill_all(_STOPPED)

    def _kill_all(self, reason: str) -> None:
        for process in filter(None, self._processes):
            process.kill_reason = process.kill_reason or reason
            kill_group(process.popen)

    def _check_process(self, n: int) -> None:
        """Start the process if it is missing, check its limits if it runs, and settle its messages if it has ended."""
        process, now = self._processes[n], time.monotonic()
        if process is not None:
            if process.popen.poll() is None:
                self._check_limits(process, now)
            else:
                self._reap(n)
        elif self._stops == 0 and now >= self._restart_at[n] and (n == 0 or self._was_ready):
            # Invariant: only the first process can create the namespace. If the namespace is lost while the others load
            # the app, they do not create it again. If the app cannot be started, one process reports this.
            try:
                self._processes[n] = self._start(n)
            except (OSError, RuntimeError, TickwheelError) as error:
                # The host has too little memory, or too many processes, threads or open files.
                pause_s = _RESTART_BACKOFF_S[1]
                self._restart_at[n] = now + pause_s
                extra = log_fields("process not started", reason=str(error), again_in_s=pause_s)
                _log.error("cannot start a process: %s; retrying in %.1f s", error, pause_s, extra=extra)

    def _check_limits(self, process: SupervisedProcess, now: float) -> None:
        if now - process.renewer.pipe_closed_at > _GRACE_S and not process.kill_reason:
            process.kill_reason = "its worker process closed or misused the pipe to its supervisor, and was killed"
            kill_group(process.popen)
        if now - process.renewer.ended_at > _END_S and not process.kill_reason:
            process.kill_reason = f"its worker process was killed, because it had not ended {_END_S:g} s after its work"
            pid, reason = process.popen.pid, process.kill_reason
            extra = log_fields("process killed", pid=pid, reason=reason)
            hint = "a thread or a child process that its app has started probably does not end"
            _log.warning("%s; %s", describe_exit(pid, reason), hint, extra=extra)
            kill_group(process.popen)
        over_limit = frozenset(
            (batch_index, *overdue)
            for batch_index, batch_state in enumerate(process.shared_state.batches)
            if (overdue := batch_state.overdue_task(now - _GRACE_S)) is not None
        )
        if (culprit := min(over_limit & process.overdue, default=None)) and not process.kill_reason:
            process.kill_reason = KILLED_OVER_LIMIT
            process.culprit = culprit
            self._stats.record_kill()
            kill_group(process.popen)
        process.overdue = over_limit

    def _start(self, n: int) -> SupervisedProcess:
        with ExitStack() as undo:
            shared_state = SharedState(self._config.consumers)
            undo.callback(shared_state.close)
            report_fd, report_write_fd = os.pipe()
            undo.callback(os.close, report_fd)
            with ExitStack() as child_fds:
                child_fds.callback(os.close, report_write_fd)
                child_input_fd, input_fd = os.pipe()
                undo.callback(os.close, input_fd)
                child_fds.callback(os.close, child_input_fd)
                config = msgspec.structs.replace(
                    self._config,
                    shared_state_fd=shared_state.fd,
                    report_fd=report_write_fd,
                    is_restart=self._was_ready,
                )
                popen = subprocess.Popen(
                    python_module("tickwheel.worker.process"),
                    stdin=child_input_fd,
                    pass_fds=(shared_state.fd, report_write_fd),
                    # Signals of the terminal must reach only the supervisor, which then stops its processes.
                    start_new_session=True,
                )
            undo.callback(popen.wait)
            undo.callback(kill_group, popen)
            # The configuration may contain a password, and every user of the host can read the arguments of a process.
            # So the configuration goes through a pipe. If the process has already died, `_check_process` notices.
            with suppress(BrokenPipeError):
                os.write(input_fd, msgspec.json.encode(config) + b"\n")
            renewer = LeaseRenewer(
                *(shared_state, report_fd, self._open_client, self._stats, self._executor, self._namespace_loss.record),
                self._queue_alarm.blocked_queues,
            )
            undo.pop_all()
        self._stats.record_start(n in self._started)
        self._started.add(n)
        return SupervisedProcess(popen, input_fd, shared_state, renewer, time.monotonic())

    def _open_client(self, report: Ready) -> Tickwheel:
        with self._lock:
            self._was_ready, self._ready_report = True, report
            if self._client is None:
                # If the server is embedded, this client also drives its wheel. The process has opened the namespace.
                drive = None if self._driver.is_on else False
                options = {"drive": drive, "timeout": self._timeout, "existing": True}
                self._client = Tickwheel(**report.client_options | options)
                self._driver.start(self._client)
                self._queue_alarm.start(self._client, report.queues, report.immutable)
            return self._client

    def _retry_client(self, now: float) -> None:
        """Open the client in a thread, if the last attempt has failed. Nothing else drives the wheel of an embedded
        server, so messages might become due, and leases be taken, only after this.
        """
        report = self._ready_report
        if report is None or self._client is not None or self._stops > 0 or now < self._open_at or self._lock.locked():
            return
        self._open_at = now + _OPEN_INTERVAL_S
        # The host may have no resources for another thread.
        with suppress(RuntimeError):
            self._executor.submit(self._try_to_open_client, report)

    def _try_to_open_client(self, report: Ready) -> None:
        try:
            self._open_client(report)
        except Exception as error:
            if self._log_throttle.should_log(str(error)):
                extra = log_fields("leases not renewed")
                _log.warning("cannot renew leases yet, retrying: %s", error, extra=extra)

    def _reap(self, n: int) -> None:
        process, self._processes[n] = self._processes[n], None
        if process is None:
            return
        code = process.popen.wait()
        os.close(process.input)
        renewer = process.renewer
        renewer.stop()
        reason = process.kill_reason or exit_reason(code)
        if not renewer.has_ended:
            # Kill the programs that the tasks of the process have started, because the tasks will run again.
            kill_group(process.popen)
        # If the server is unreachable, the calls last until their timeout. They must not delay other processes.
        settler = threading.Thread(target=self._settle, args=(process, reason), name="tickwheel-settler")
        try:
            settler.start()
        except RuntimeError:
            # The host has no resources for another thread.
            self._settle(process, reason)
        else:
            self._settlers = [thread for thread in self._settlers if thread.is_alive()] + [settler]
        self._stats.record_exit()
        self.health.on_end(describe_exit(process.popen.pid, reason))
        if renewer.has_ended:
            self._backoffs[n].reset()
        elif self._stops == 0 and not self._was_ready and (code >= 0 or renewer.ended_at < math.inf):
            # Another start would probably fail in the same way.
            failure = renewer.start_failure
            self._exit_code = ExitCode.USAGE if failure is None else failure.exit_code
            if failure is None:
                _log.error("%s before it had started", reason, extra=log_fields("process not started"))
            self.stop()
        elif self._stops == 0:
            if time.monotonic() - process.started > _LONG_LIFE_S:
                self._backoffs[n].reset()
            pid, pause_s = process.popen.pid, self._backoffs[n].next()
            self._restart_at[n] = time.monotonic() + pause_s
            extra = log_fields("process ended", pid=pid, reason=reason, again_in_s=pause_s)
            others = "" if self._was_ready else describe_others(self._count - 1)
            _log.error("%s; restarting in %.1f s%s", describe_exit(pid, reason), pause_s, others, extra=extra)

    def _settle(self, process: SupervisedProcess, reason: str) -> None:
        """Settle the messages of a process that has ended, and release its shared state."""
        culprit = process.culprit

        def interruption(batch_index: int, message_index: int) -> Interruption:
            if reason == _STOPPED:
                return Interruption(reason, _AT_ONCE)
            # Without a known culprit, any task that ran may have ended the process.
            if culprit is None or culprit[:2] == (batch_index, message_index):
                return Interruption(reason)
            return Interruption(f"another task of its worker process was {reason}", _AT_ONCE)

        renewer = process.renewer
        with self._settler_slots:
            settle_after_exit(
                process.shared_state, renewer.batches, renewer.open_client, interruption, renewer.task_names
            )
            renewer.close()
        process.shared_state.close()
