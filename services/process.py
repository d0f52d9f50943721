"""A server as a process: started until it is ready, killed, paused, and restarted on the same data.

The server ends with the program that started it, in any case, unless it is detached.
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
# Kills the server when its own standard input ends. The program that started the server holds that input open.
_GUARD = 'cat >/dev/null; kill -KILL "$1"'


class ServiceError(RuntimeError):
    """A server did not start, or did not do something in time. The text names the server, and what to do."""


class Process:
    """The server run by ``command``, with ``folder`` as its working directory, and its ``log`` in that folder.

    ``is_ready`` returns whether the server is ready; OSError means no. ``start_s`` limits the time of a start. Nothing
    runs before `start`. As a context manager it stops the server at the end.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        is_ready: Callable[[], bool],
        *,
        start_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.folder = folder
        self.log = folder / f"{name}.log"
        self._is_ready = is_ready
        self._start_s = start_s
        self._environment = environment or {}
        self._running: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the running process. Raises ServiceError if it is not running."""
        if self._running is None:
            raise ServiceError(f"{self.name} is not running")
        return self._running.pid

    @property
    def is_running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._running is not None and not self._has_ended()

    def start(self) -> None:
        """Run the server until it is ready. Raises ServiceError with the end of its log if not within ``start_s``."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Run the server without waiting: some servers become ready only together."""
        if self._running is not None:
            raise ServiceError(f"{self.name} already runs as process {self.pid}: stop or kill it first")
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                self.command,
                cwd=self.folder,
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
        """Wait until the server is ready. If it does not become ready, kill it and raise ServiceError with its log."""
        deadline = time.monotonic() + self._start_s
        while not self.is_ready():
            if self._has_ended() or time.monotonic() > deadline:
                failure = "ended before it served" if self._has_ended() else f"did not serve within {self._start_s:g} s"
                self.kill()
                raise ServiceError(f"{self.name} {failure}. The end of {self.log}:\n{self.log_tail()}")
            time.sleep(_POLL_S)

    def is_ready(self) -> bool:
        """Return whether the server is ready now."""
        try:
            return self._is_ready()
        except OSError:
            return False

    def kill(self) -> None:
        """Kill the process with SIGKILL, paused or not. Does nothing if it is not running."""
        if self._running is not None:
            self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the process with SIGTERM, like an operator, and kill it after 15 s."""
        if self._running is not None:
            self.resume()
            self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Start the server again on the same port and data. Kills it first if it runs."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Pause the process with SIGSTOP: its connections stay open, and it does not answer."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the process after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the process during the block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def detach(self) -> None:
        """Let the server outlive this program."""
        self._dismiss_guard()

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, signal_number: int) -> None:
        assert self._running is not None
        # The guard goes first: after the wait, another process may get the id.
        self._dismiss_guard()
        self._running.send_signal(signal_number)
        try:
            self._running.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait(_STOP_S)
        self._running = None

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.kill()
            self._guard.wait(_STOP_S)
            self._guard.stdin.close()
            self._guard = None

    def _has_ended(self) -> bool:
        # Without reaping the process, so that its id stays reserved while the guard may use it.
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
        if time.monotonic() > deadline:
            raise ServiceError(f"not within {within:g} s: {label}")
        time.sleep(_POLL_S)


def _binds(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind((HOST, port))
    except OSError:
        return False
    return True
