"""A server as a process of its own: started until it serves, killed, paused, started again on the same data.

It ends with the program that started it, however that ends, unless it is let go.
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
# Below the ports that systems give to outgoing connections: none of those takes the port of a server that is down.
_PORTS = range(15_000, 32_000)
_assigned_ports: set[int] = set()
# Once its standard input ends, which its program holds open, it kills the server.
_GUARD = 'cat >/dev/null; kill -KILL "$1"'


class ServiceError(RuntimeError):
    """A server that did not start, or did not do what it was told in time; the text says which, and what to do."""


class Process:
    """The server that ``command`` runs, with ``folder`` as its working directory and ``log`` in there.

    ``serves`` says whether it does its work; it may raise OSError for no. ``start_s`` bounds a start, in seconds.
    Nothing runs before start(). As a context manager it is stopped at the end.
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
        """The number of the running process; ServiceError where there is none."""
        if self._running is None:
            raise ServiceError(f"{self.name} is not running")
        return self._running.pid

    @property
    def is_running(self) -> bool:
        """Whether its process is there, paused or not."""
        return self._running is not None and not self._has_ended()

    def start(self) -> None:
        """Run it until it serves. ServiceError, with the end of its log, where it does not within ``start_s``."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Run it, without waiting: some serve only together with others."""
        if self._running is not None:
            raise ServiceError(f"{self.name} runs already, as process {self.pid}: stop or kill it first")
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
        """Until it does its work; where it does not, it is killed, and the error shows the end of its log."""
        deadline = time.monotonic() + self._start_s
        while not self.is_ready():
            if self._has_ended() or time.monotonic() > deadline:
                failure = "ended before it served" if self._has_ended() else f"did not serve within {self._start_s:g} s"
                self.kill()
                raise ServiceError(f"{self.name} {failure}. The end of {self.log}:\n{self.log_tail()}")
            time.sleep(_POLL_S)

    def is_ready(self) -> bool:
        """Whether it does its work now."""
        try:
            return self._is_ready()
        except OSError:
            return False

    def kill(self) -> None:
        """End it at once, as kill -9 does, paused or not. Nothing happens where it does not run."""
        if self._running is not None:
            self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, as an operator does, and kill it where it does not within 15 s."""
        if self._running is not None:
            self.resume()
            self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Start it again on the same port and data, having killed it where it runs."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop it in the middle of whatever it does, as SIGSTOP does: its connections stay open and silent."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after pause()."""
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Paused until the end of the block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def detach(self) -> None:
        """From now on it outlives this program."""
        self._dismiss_guard()

    def log_tail(self) -> str:
        """The last lines of what it said."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, signal_number: int) -> None:
        assert self._running is not None
        # The guard goes first: once the process is waited for, its number may be another's.
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
        # It is not waited for here, so that its number stays its own as long as the guard knows it.
        assert self._running is not None
        return os.waitid(os.P_PID, self._running.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def free_port() -> int:
    """A port of this machine that nobody listens on and this program has not been given yet.

    No outgoing connection will be given it either.
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
    """Until the condition holds; ServiceError, naming what did not happen, after ``within`` seconds."""
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
