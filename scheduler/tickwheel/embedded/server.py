"""The embedded server: one valkey-server for each data directory, shared by the programs that open it.

The first program starts the server, and the last one that closes the directory stops it. After a crash of a program or
of the server, the next program that opens the directory repairs the state. No service, port or configuration is needed.
"""

import atexit
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import platformdirs

from tickwheel.embedded.file_lock import FileLock, is_free
from tickwheel.embedded.valkey_process import Appendfsync, EmbeddedServerError, ServerEnded, ValkeyProcess
from tickwheel.runtime.private_file import (
    UnsafePath,
    check_data_folder,
    check_entries,
    check_parents,
    make_data_folder,
    make_private_folder,
    resolve_path,
)

__all__ = ["EmbeddedServer", "EmbeddedServerError"]

SOCKET_FOLDER = "run"
SOCKET_NAME = "valkey.sock"
# Time limit of the start lock: longer than any start or stop, including the time to kill a frozen server.
_LOCK_S = 120.0
# Maximum number of attempts to start the server, because the server may be killed while it starts.
_START_ATTEMPTS = 3
# A socket's address has 108 bytes on Linux and 104 on macOS, including a NUL.
_SOCKET_PATH_BYTES_MAX = 103
# The bundled binary uses libc's allocator, and scripts allocate and free thousands of strings. If the allocator has a
# large cache for each thread, the server needs a tenth less time in total (docs/decisions/0006). Platforms without
# glibc ignore the variable.
ALLOCATOR = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=30000:glibc.malloc.top_pad=16777216"}


class EmbeddedServer:
    """The server of ``data_dir``. The default is ``tickwheel`` in the platform's folder for user data.

    ``appendfsync`` is ``"always"`` (acknowledged writes are on disk) or ``"everysec"`` (about the last second may be
    lost if the machine crashes). If programs that share a server pass different values, the stricter one applies.

    File locks record which programs have the directory open. So these programs must run on one machine as one user, and
    the directory must be on a file system that supports locks and unix sockets. If a program exits without ``close()``,
    the directory is closed at exit. If a program is killed, the server keeps running. The next program that closes the
    directory stops the server, unless further programs have the directory open.

    A directory that another user has made or can change is rejected, and so are symbolic links in it.

    Threads may share an object. In a forked child (os.fork, multiprocessing) the object is closed. If the child needs
    the server, it calls ``open()``; then the server also outlives the parent. If a C library forks without Python's
    help, the directory stays open until that child has ended or this program has closed it.

    Every method may raise EmbeddedServerError. Its text contains the problem and a remedy.
    """

    def __init__(self, data_dir: Path | None = None, *, appendfsync: Appendfsync = "always") -> None:
        if appendfsync not in ("always", "everysec"):
            raise ValueError(f"appendfsync must be 'always' or 'everysec', not {appendfsync!r}")
        self.data_dir = resolve_data_dir(data_dir)
        self.appendfsync: Appendfsync = appendfsync
        self._socket_folder = self.data_dir / SOCKET_FOLDER
        self._short_dir = _short_socket_dir(self._socket_folder)
        # Invariant: every program that has the directory open holds `programs.lock` in shared mode. To open or close
        # the directory, or to start or stop the server, a program takes `start.lock`. If a program is killed, its locks
        # are released.
        self._programs_path = self.data_dir / "programs.lock"
        self._membership = FileLock(self._programs_path)
        self._process = ValkeyProcess(self.data_dir, self._short_dir / SOCKET_NAME)

    @property
    def is_open(self) -> bool:
        """Whether this process has the directory open through this object."""
        return self._membership.is_locked

    @property
    def socket_path(self) -> str:
        """The path of the server's unix socket."""
        return str(self._process.socket_path)

    @property
    def url(self) -> str:
        """The server's unix socket as a ``unix://`` URL."""
        return f"unix://{quote(os.fsencode(self.socket_path))}"

    @property
    def log_path(self) -> Path:
        """The path of the server's log."""
        return self._process.log_path

    @property
    def pid(self) -> int | None:
        """The id of the server's process, as the server reports it now; None if no server runs."""
        running = self._process.probe()
        return running.pid if running else None

    def open(self) -> str:
        """Open the directory: use its running server, or start one. Return the path of the socket once the server is
        ready.

        If the directory is already open, start the server only if it has ended.
        """
        if os.name != "posix":
            raise self._error("it requires Linux or macOS. Pass the URL of a server instead: redis://host:6379")
        joined = False
        try:
            with self._start_lock(create=True):
                if not self.is_open:
                    joined = self._membership.try_shared()
                    if not joined:
                        raise self._error(
                            f"{self._programs_path} is locked by a program other than Tickwheel. Stop that program"
                        )
            self._ensure_server()
        except BaseException:
            if joined:
                self._membership.release()
            raise
        if joined:
            atexit.register(self.close)
        return self.socket_path

    def ensure_running(self) -> None:
        """Restart the server if it has crashed. Call when a connection is lost.

        Any number of programs may call this concurrently: one of them starts the server, and the others use it.
        """
        self._check_open()
        if not self._membership.is_current():
            raise self._error("the directory was deleted while it was open. Close it and open it again")
        self._ensure_server()

    def close(self) -> None:
        """Close the directory, and stop the server if no other program has the directory open. Idempotent."""
        if not self.is_open:
            return
        atexit.unregister(self.close)
        self._membership.release()
        if not self.data_dir.exists():
            # The directory was deleted while its server ran. No other program can find the server.
            self._process.kill()
            return
        with self._start_lock():
            # Check the path, not the lock just released: if the directory was deleted and created again, the server of
            # the new one belongs to other programs.
            if is_free(self._programs_path):
                self._process.stop()
                _unlink_socket_dir(self._short_dir, self._socket_folder)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if not self.is_open:
            raise self._error("the directory is not open in this process. Call open() first")

    def _ensure_server(self) -> None:
        for attempts_left in reversed(range(_START_ATTEMPTS)):
            try:
                with self._start_lock():
                    # Another thread may have closed the directory in the meantime. Then do not start a server that no
                    # program would stop.
                    self._check_open()
                    # Another program that has the directory open may have chosen `always`.
                    appendfsync = self.appendfsync if self._membership.is_only_holder() else "always"
                    arguments = _server_arguments(self.data_dir, self.log_path, appendfsync)
                    self._process.join_or_start(self.appendfsync, arguments, ALLOCATOR)
                # Without the lock, so that other programs can open the directory while the server loads its data.
                self._process.wait_until_loaded()
                return
            except ServerEnded:
                if not attempts_left:
                    raise

    @contextmanager
    def _start_lock(self, *, create: bool = False) -> Iterator[None]:
        """Exclude other programs that open or close the directory, or start or stop the server, during the block."""
        lock = FileLock(self.data_dir / "start.lock")
        try:
            if create:
                make_data_folder(self.data_dir)
            check_data_folder(self.data_dir)
            lock.acquire_exclusive(_LOCK_S)
            make_private_folder(self._socket_folder)
            check_entries(self._process.files())
            _link_socket_dir(self._short_dir, self._socket_folder)
            yield
        except (FileExistsError, NotADirectoryError) as error:
            raise self._error(
                f"{error.filename} exists and is not a folder. Remove it, or pass another data_dir"
            ) from error
        except UnsafePath as error:
            raise self._error(str(error)) from error
        except TimeoutError as error:
            raise self._error(f"{error}. If that process is frozen, resume it or end it") from error
        except OSError as error:
            raise self._error(
                f"{error}. Pass a data_dir on a local disk that this user can write to, or the URL of"
                " a server: redis://host:6379"
            ) from error
        finally:
            lock.release()

    def _error(self, text: str) -> EmbeddedServerError:
        return EmbeddedServerError(text, data_dir=self.data_dir)


def _server_arguments(data_dir: Path, log_path: Path, appendfsync: Appendfsync) -> list[str]:
    """Return the arguments of the server program."""
    values = {
        # `dir` is first, because the server changes to this directory immediately. The path of the socket is relative
        # to the directory, so a long path of the directory does not exceed the maximum length of a socket address.
        "dir": str(data_dir),
        "unixsocket": f"{SOCKET_FOLDER}/{SOCKET_NAME}",
        "unixsocketperm": "700",
        "port": "0",
        "daemonize": "yes",
        # For operators only; no program reads it.
        "pidfile": str(data_dir / "valkey.pid"),
        "logfile": str(log_path),
        "appendonly": "yes",
        "appendfsync": appendfsync,
        "no-appendfsync-on-rewrite": "no",
        # The server drops an incomplete last entry of the append-only file. With `always`, such an entry was never
        # acknowledged.
        "aof-load-truncated": "yes",
        "save": "",
        # Other policies would delete messages when the memory is full.
        "maxmemory-policy": "noeviction",
        # The server wakes up 10 times a second when idle, and more often with many clients.
        "hz": "10",
        "dynamic-hz": "yes",
        "busy-reply-threshold": "500",
        # The server stores a sorted set with few entries as a list, and searches the list from its start. If a call
        # adds 100 messages, each new entry is compared with all entries before this entry. A lower limit for such lists
        # saves a fifteenth of the server's time for a message, and a tenth on exclusive queues (docs/decisions/0006).
        "zset-max-listpack-entries": "16",
        "hash-max-listpack-entries": "64",
    }
    return [text for name, value in values.items() for text in (f"--{name}", value)]


def resolve_data_dir(data_dir: str | Path | None) -> Path:
    """Return the absolute path of a data directory. None stands for the user's default directory.

    Raises EmbeddedServerError if the path leads through a symbolic link that another user could have put there.
    """
    path = Path(platformdirs.user_data_path("tickwheel") if data_dir is None else data_dir).expanduser()
    try:
        return resolve_path(path)
    except UnsafePath as error:
        raise EmbeddedServerError(str(error), data_dir=path) from error


def _short_socket_dir(folder: Path) -> Path:
    """Return the folder or, if the path of a socket in the folder would be too long, the path of a short link to it.

    The link is a symbolic link in a private temporary folder. The socket itself is always in the data directory, so
    programs with different values of TMPDIR reach the same server by different links. A link that was removed is
    created again.
    """
    if len(os.fsencode(folder / SOCKET_NAME)) <= _SOCKET_PATH_BYTES_MAX:
        return folder
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tickwheel-{os.geteuid()}-{name}" / "run"


def _link_socket_dir(link: Path, folder: Path) -> None:
    if link == folder:
        return
    if len(os.fsencode(link / SOCKET_NAME)) > _SOCKET_PATH_BYTES_MAX:
        raise OSError(f"{link} is too long for a socket, and so is {folder}: set TMPDIR to a shorter path")
    try:
        check_parents(resolve_path(link.parents[1]) / link.parent.name)
        make_private_folder(link.parent)
    except UnsafePath as error:
        raise UnsafePath(
            f"{error}. If another user has made or can replace the folder, set TMPDIR to a folder that only this user"
            " can write to, or pass a data_dir with a shorter path, which needs no such folder"
        ) from error
    if not link.is_symlink() or link.readlink() != folder:
        link.unlink(missing_ok=True)
        link.symlink_to(folder)


def _unlink_socket_dir(link: Path, folder: Path) -> None:
    if link != folder:
        # A link that cannot be removed is harmless.
        with suppress(OSError):
            link.unlink()
            link.parent.rmdir()
