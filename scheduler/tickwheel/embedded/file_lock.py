"""File locks (flock) that end with the process that took them, however it ends.

A program started by the holder does not inherit them, a forked child gives its copies up at once.
The one exception is meant: a lock handed to a process that is being started (``fileno()`` among its
``pass_fds``, then ``forget()``) lives as long as that process, and proves which process it is.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

with suppress(ModuleNotFoundError):
    # Missing on Windows, where the embedded server says what to do instead.
    import fcntl

_POLL_S = 0.01

_guard = threading.RLock()
_open_locks: set["FileLock"] = set()


class FileLock:
    """A lock on the file ``path``, which is created when missing and never removed.

    Each object locks for itself: two of them exclude each other within one program too, so threads
    are safe when each uses its own. Raises OSError where the file cannot be opened, or its file
    system knows no locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    @property
    def is_locked(self) -> bool:
        """Whether this process holds the lock through this object. False in a forked child."""
        return self._fd is not None

    def try_shared(self) -> bool:
        """Take the lock together with others; False where somebody has it alone."""
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Take the lock alone; False where anybody has it."""
        return self._try(fcntl.LOCK_EX)

    def acquire_exclusive(self, timeout_s: float) -> None:
        """Take the lock alone, waiting ``timeout_s`` seconds at most; TimeoutError then."""
        deadline = time.monotonic() + timeout_s
        while not self.try_exclusive():
            if time.monotonic() > deadline:
                holder = self.path.read_text().strip() or "unknown"
                raise TimeoutError(f"process {holder} has held {self.path} for over {timeout_s:g} s")
            time.sleep(_POLL_S)
        os.ftruncate(self.fileno(), 0)
        os.pwrite(self.fileno(), f"{os.getpid()}\n".encode(), 0)

    def is_only_holder(self) -> bool:
        """Whether nobody else shares this lock, which is held and shared.

        Leaves the lock for a moment: only for callers that keep newcomers out by another lock.
        """
        try:
            fcntl.flock(self.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
        # Also after a failure: an upgrade drops the old lock before it tries the new one.
        fcntl.flock(self.fileno(), fcntl.LOCK_SH)
        return alone

    def is_current(self) -> bool:
        """Whether the path still names the locked file, which may have been deleted since."""
        try:
            return os.path.samestat(os.fstat(self.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    def fileno(self) -> int:
        if self._fd is None:
            raise ValueError(f"{self.path} is not locked by this process")
        return self._fd

    def release(self) -> None:
        """Give the lock up, for every process that holds it through this object."""
        with _guard:
            if self._fd is not None:
                # Closing alone would leave it with a copy that some C library's fork has made.
                fcntl.flock(self._fd, fcntl.LOCK_UN)
                self.detach()

    def detach(self) -> None:
        """Close this process's copy only; the lock stays with a process that inherited it."""
        with _guard:
            if self._fd is not None:
                _open_locks.discard(self)
                os.close(self._fd)
                self._fd = None

    def _try(self, operation: int) -> bool:
        if self._fd is not None:
            raise ValueError(f"{self.path} is already locked through this object")
        with _guard:
            # Python opens files close-on-exec: no program started from here inherits it.
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            _open_locks.add(self)
        try:
            fcntl.flock(self._fd, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            self.detach()
            return False
        except BaseException:
            self.detach()
            raise
        return True


def is_free(path: Path) -> bool:
    """Whether nobody holds a lock on the file at ``path``, by taking it for a moment."""
    probe = FileLock(path)
    if not probe.try_exclusive():
        return False
    probe.release()
    return True


def holders(path: Path, program: str) -> Iterator[int]:
    """The processes that have the lock file open and run a program whose name begins so.

    None where the system has no /proc.
    """
    with suppress(FileNotFoundError):
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            if _is_holder(int(pid), path, program):
                yield int(pid)


def signal_holders(path: Path, program: str, signal_number: int) -> None:
    """Send the signal to the processes of ``holders()``, and certainly to no other."""
    for pid in holders(path, program):
        with suppress(ProcessLookupError):
            # A descriptor stays with its process where a number may be given to the next: what is
            # proven after it was opened still holds when the signal arrives.
            process = os.pidfd_open(pid)
            try:
                if _is_holder(pid, path, program):
                    signal.pidfd_send_signal(process, signal_number)
            finally:
                os.close(process)


def _is_holder(pid: int, path: Path, program: str) -> bool:
    # Another user's process, and one that has just ended, is none.
    with suppress(OSError):
        if Path(os.readlink(f"/proc/{pid}/exe")).name.startswith(program):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                opened = os.readlink(f"/proc/{pid}/fd/{fd}")
                # So does Linux show a file that was deleted since.
                if opened.removesuffix(" (deleted)") == str(path):
                    return True
    return False


def _before_fork() -> None:
    # No fork between the opening of a file and its entry in _open_locks.
    _guard.acquire()


def _after_fork_in_parent() -> None:
    _guard.release()


def _after_fork_in_child() -> None:
    # The child's copies are of the parent's locks: to unlock them would take them from the parent,
    # to keep them open would hold them beyond its death. Closing does neither.
    global _guard
    _guard = threading.RLock()
    for lock in tuple(_open_locks):
        lock.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
