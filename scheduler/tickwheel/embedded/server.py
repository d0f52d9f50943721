"""The embedded server: one valkey-server per data directory, shared by the programs that open it.

The first program starts it, the last one to leave stops it, and whoever comes after a crash, of a
program or of the server, finds what is there and puts it right. No service, port or configuration.
"""

import atexit
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import platformdirs

from tickwheel.embedded.file_lock import FileLock, is_free
from tickwheel.embedded.valkey_process import EmbeddedServerError, ServerEnded, ValkeyProcess
from tickwheel.embedded.valkey_settings import SOCKET_FOLDER, SOCKET_NAME, Appendfsync

__all__ = ["EmbeddedServer", "EmbeddedServerError"]

# Longer than any start or stop takes, with the killing of a frozen server.
_LOCK_S = 120.0
# A server that is killed while it starts gets another chance; one that cannot start fails them all.
_START_ATTEMPTS = 3
# A socket's address holds 108 bytes on Linux, 104 on macOS, the last of them a NUL.
_SOCKET_PATH_BYTES_MAX = 103


class EmbeddedServer:
    """The server of ``data_dir``; default: ``tickwheel`` in the platform's folder for user data.

    ``appendfsync`` is ``"always"`` (what is acknowledged is on disk) or ``"everysec"`` (about the
    last second may be lost when the machine goes down). A server that programs share keeps to the
    stricter of what they asked for.

    File locks tell who has the directory open, so these programs run on one machine as one user,
    and the directory is on a file system with locks and unix sockets. A program that ends without
    ``close()`` leaves by itself. One that is killed leaves the server running for the next, which
    joins it, and stops it in the end.

    Threads may share an object. A forked child (os.fork, multiprocessing) does not inherit what is
    open: the object is closed there, and the child calls ``open()`` if it needs the server beyond
    its parent's life. A fork that a C library makes behind Python's back keeps the directory open
    until that child has ended or this program has closed.

    Every method raises EmbeddedServerError, which says what is wrong and what to do.
    """

    def __init__(self, data_dir: Path | None = None, *, appendfsync: Appendfsync = "always") -> None:
        if appendfsync not in ("always", "everysec"):
            raise ValueError(f"appendfsync is 'always' or 'everysec', not {appendfsync!r}")
        self.data_dir = resolve_data_dir(data_dir)
        self.appendfsync: Appendfsync = appendfsync
        self._socket_folder = self.data_dir / SOCKET_FOLDER
        self._short_dir = _short_socket_dir(self._socket_folder)
        # Invariant: every program that has the directory open shares `programs.lock`, and none
        # joins, leaves, starts or stops the server without `start.lock`, but by being killed.
        self._programs_path = self.data_dir / "programs.lock"
        self._membership = FileLock(self._programs_path)
        self._process = ValkeyProcess(self.data_dir, self._short_dir / SOCKET_NAME)

    @property
    def is_open(self) -> bool:
        """Whether this process has the directory open through this object."""
        return self._membership.is_locked

    @property
    def socket_path(self) -> str:
        """The server's unix socket."""
        return str(self._process.socket_path)

    @property
    def url(self) -> str:
        """The server's unix socket as a ``unix://`` URL."""
        return f"unix://{quote(os.fsencode(self.socket_path))}"

    @property
    def log_path(self) -> Path:
        """The server's log."""
        return self._process.log_path

    @property
    def pid(self) -> int | None:
        """The server's process, asked for now; None when none is running."""
        running = self._process.probe()
        return running.pid if running else None

    def open(self) -> str:
        """Join the directory's server, or start one; the path of its socket once it serves.

        Opening what is open checks that the server runs, and nothing more.
        """
        if os.name != "posix":
            raise self._error("it needs Linux or macOS. Give the URL of a server: redis://host:6379")
        joined = False
        try:
            with self._start_lock(create=True):
                if not self.is_open:
                    joined = self._membership.try_shared()
                    if not joined:
                        raise self._error(f"{self._programs_path} is locked by a foreign program")
            self._ensure_server()
        except BaseException:
            if joined:
                self._membership.release()
            raise
        if joined:
            atexit.register(self.close)
        return self.socket_path

    def ensure_running(self) -> None:
        """Start the server again if it has crashed. To be called when a connection is lost.

        Any number of programs may do so at once: one of them starts it, the others join it.
        """
        self._check_open()
        if not self._membership.is_current():
            raise self._error("the directory was deleted while it was open. Close and open again")
        self._ensure_server()

    def close(self) -> None:
        """Leave, and stop the server if nobody else has the directory open. Twice is fine."""
        if not self.is_open:
            return
        atexit.unregister(self.close)
        self._membership.release()
        if not self.data_dir.exists():
            # Deleted under its server, which nobody could find again.
            self._process.kill()
            return
        with self._start_lock():
            # Not by the lock just given up: should the directory have been deleted and made anew,
            # the new one's server belongs to others.
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
            raise self._error("it is not open in this process. Call open() first")

    def _ensure_server(self) -> None:
        for attempts_left in reversed(range(_START_ATTEMPTS)):
            try:
                with self._start_lock():
                    # Closed by another thread meanwhile: whoever starts it now would leave it running for nobody.
                    self._check_open()
                    alone = self._membership.is_only_holder()
                    self._process.join_or_start(self.appendfsync, alone=alone)
                # Others may join while it loads.
                self._process.wait_until_loaded()
                return
            except ServerEnded:
                if not attempts_left:
                    raise

    @contextmanager
    def _start_lock(self, *, create: bool = False) -> Iterator[None]:
        """Keep every other program from joining, leaving, starting and stopping meanwhile."""
        lock = FileLock(self.data_dir / "start.lock")
        try:
            if create:
                self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.acquire_exclusive(_LOCK_S)
            _make_private(self._socket_folder)
            _link_socket_dir(self._short_dir, self._socket_folder)
            yield
        except (FileExistsError, NotADirectoryError) as error:
            raise self._error(
                f"{error.filename} is in the way, which is no folder. Remove it, or give another data_dir"
            ) from error
        except TimeoutError as error:
            raise self._error(f"{error}. Is that process frozen? Let it go on, or end it") from error
        except OSError as error:
            raise self._error(
                f"{error}. Give a data_dir on a local disk that this user can write, or the URL of"
                " a server: redis://host:6379"
            ) from error
        finally:
            lock.release()

    def _error(self, text: str) -> EmbeddedServerError:
        return EmbeddedServerError(text, data_dir=self.data_dir)


def resolve_data_dir(data_dir: str | Path | None) -> Path:
    """Return the absolute path of a data directory; of None, the default directory of the user."""
    if data_dir is None:
        data_dir = platformdirs.user_data_path("tickwheel")
    return Path(data_dir).expanduser().resolve()


def _make_private(folder: Path) -> None:
    """Make the folder, or verify that no other user can have put anything there."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise PermissionError(
                f"{folder} must be a folder of user {os.geteuid()} with mode 0700, but is"
                f" {stat.filemode(status.st_mode)} of user {status.st_uid}. Run as that user, correct the mode or"
                " remove it"
            ) from None


def _short_socket_dir(folder: Path) -> Path:
    """The folder itself, or where a socket's path in it would be too long, a short way there.

    The way is a symbolic link in a private temporary folder. The socket itself is always in the
    data directory: programs with another TMPDIR take another way to the same server, and a link
    that is lost is made again.
    """
    if len(os.fsencode(folder / SOCKET_NAME)) <= _SOCKET_PATH_BYTES_MAX:
        return folder
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tickwheel-{os.geteuid()}-{name}" / "run"


def _link_socket_dir(link: Path, folder: Path) -> None:
    if link == folder:
        return
    if len(os.fsencode(link / SOCKET_NAME)) > _SOCKET_PATH_BYTES_MAX:
        raise OSError(f"{link} is too long for a socket, as is {folder}: set TMPDIR to a shorter one")
    _make_private(link.parent)
    if not link.is_symlink() or link.readlink() != folder:
        link.unlink(missing_ok=True)
        link.symlink_to(folder)


def _unlink_socket_dir(link: Path, folder: Path) -> None:
    if link != folder:
        # A link left behind harms nobody.
        with suppress(OSError):
            link.unlink()
            link.parent.rmdir()
