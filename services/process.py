"""A server or a program as a process that can be started, killed, paused, and restarted on the same data.

When the program that started the process ends, even by SIGKILL, the process is killed, unless it is detached.
"""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
_POLL_S = 0.005
_STOP_S = 15.0
_LOG_TAIL_LINES = 20
# Below the ports of outgoing connections, so that no connection takes the port of a stopped server.
_PORTS = range(15_000, 32_000)
_assigned_ports: set[int] = set()
# A shell script that kills the server when the standard input of the shell ends. The program that started the server
# holds this input open.
_GUARD = 'cat >/dev/null; kill -KILL "$1"'


class ServiceError(RuntimeError):
    """A server did not start, or did not do something in time."""


class Process:
    """The process of ``command``, with its output in the file ``log_path`` of ``folder``.

    ``ready_when`` is a function that returns whether the process is ready (an OSError means no), or a text that the log
    contains once the process is ready. By default, the process is ready immediately. It must be ready within
    ``start_s`` seconds. The working directory is ``folder``, or ``cwd``. Nothing runs before `start`. As a context
    manager, the object starts the process, and stops it at the end.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        ready_when: Callable[[], bool] | str = "",
        *,
        start_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.folder = folder
        self.log_path = folder / f"{name}.log"
        self._ready_when = ready_when
        self._start_s = start_s
        self._environment = environment or {}
        self._cwd = cwd or folder
        self._log_begin = 0
        self._running: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the process that was started last. Raises ServiceError if there is none, or if it was stopped."""
        if self._running is None:
            raise ServiceError(f"{self.name} is not running")
        return self._running.pid

    @property
    def is_running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._running is not None and not self._has_ended()

    @property
    def log(self) -> str:
        """The output since the last start."""
        if not self.log_path.exists():
            return ""
        return self.log_path.read_bytes()[self._log_begin :].decode(errors="replace")

    def start(self) -> None:
        """Start the process, and wait until it is ready. Raises ServiceError with the end of the log if it is not."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process without waiting, because some servers become ready only once other servers run."""
        if self._running is not None:
            raise ServiceError(f"{self.name} already runs as process {self.pid}: stop or kill it first")
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._log_begin = log.tell()
            self._running = subprocess.Popen(
                self.command,
                cwd=self._cwd,
                env=os.environ | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "sh", str(self.pid)], stdin=subprocess.PIPE, start_new_session=True
        )

    def wait_until_ready(self) -> None:
        """Wait until the process is ready. If it does not become ready, kill it and raise ServiceError with its log."""
        deadline = time.monotonic() + self._start_s
        while not self.is_ready():
            if self._has_ended() or time.monotonic() > deadline:
                failure = "ended before it served" if self._has_ended() else f"did not serve within {self._start_s:g} s"
                self.kill()
                raise ServiceError(f"{self.name} {failure}. The end of {self.log_path}:\n{self.log_tail()}")
            time.sleep(_POLL_S)

    def is_ready(self) -> bool:
        """Return whether the process is ready now."""
        if isinstance(self._ready_when, str):
            return self._ready_when in self.log
        try:
            return self._ready_when()
        except OSError:
            return False

    def kill(self) -> None:
        """Kill the process with SIGKILL, paused or not. Does nothing if it is not running."""
        if self._running is not None:
            self._end(signal.SIGKILL)

    def stop(self, within: float = _STOP_S) -> int | None:
        """Stop the process with SIGTERM, like an operator, and kill it after ``within`` seconds.

        Returns its exit status, or None if it is not running.
        """
        if self._running is None:
            return None
        self.resume()
        return self._end(signal.SIGTERM, within)

    def wait(self, within: float = _STOP_S) -> int:
        """Wait until the process ends, and return its exit status. Raises ServiceError after ``within`` seconds."""
        wait_until(lambda: not self.is_running, f"{self.name} has ended", within)
        return self._end(signal.SIGKILL)

    def send_signal(self, signal_number: signal.Signals) -> None:
        """Send a signal to the process."""
        os.kill(self.pid, signal_number)

    def restart(self) -> None:
        """Start the process again on the same port and data. Kills it first if it runs."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Pause the process with SIGSTOP: its connections stay open, and it does not answer.

        When the method returns, all threads are paused: no thread is still in a call that was sending data.
        """
        self.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Resume the process after `pause`."""
        self.send_signal(signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the process during the block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def detach(self) -> None:
        """Let the process outlive this program."""
        self._dismiss_guard()

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.splitlines()[-_LOG_TAIL_LINES:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, signal_number: int, within: float = _STOP_S) -> int:
        assert self._running is not None
        # The guard ends first: after the wait, another process may have the id, and the guard would kill it.
        self._dismiss_guard()
        self._running.send_signal(signal_number)
        try:
            status = self._running.wait(within)
        except subprocess.TimeoutExpired:
            self._running.kill()
            status = self._running.wait(_STOP_S)
        self._running = None
        return status

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.kill()
            self._guard.wait(_STOP_S)
            self._guard.stdin.close()
            self._guard = None

    def _has_ended(self) -> bool:
        # WNOWAIT does not reap the process, so its id stays reserved while the guard may use the id.
        assert self._running is not None
        return os.waitid(os.P_PID, self._running.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def free_port() -> int:
    """Return a port of this machine that is free and was not returned before.

    The system does not use the port for outgoing connections.
    """
    while True:
        port = random.choice(_PORTS)
        if port in _assigned_ports:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if _binds(probe, port):
                _assigned_ports.add(port)
                return port


def wait_until(condition: Callable[[], bool], label: str, within: float) -> None:
    """Wait until the condition holds. Raises ServiceError with ``label`` after ``within`` seconds."""
    deadline = time.monotonic() + within
    while not condition():
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise ServiceError(f"this did not happen within {within:g} s: {label}")
        time.sleep(min(_POLL_S, left_s))


def _binds(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind((HOST, port))
    except OSError:
        return False
    return True
