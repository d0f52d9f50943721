"""File locks (flock) that end with the process that took them, even if the process is killed.

Programs started by the holder do not inherit the locks, and a forked child closes its copies immediately. There is one
exception, on purpose: a lock that is passed to a new process (``fileno()`` in its ``pass_fds``, then ``detach()``)
lives until that process ends, and `holders` finds the process by its lock.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tickwheel.runtime.private_file import open_private

with suppress(ModuleNotFoundError):
    # The module is missing on Windows. There, `EmbeddedServer.open` raises an error that names the alternative.
    import fcntl

_POLL_S = 0.01

_guard = threading.RLock()
_open_locks: set["FileLock"] = set()


class FileLock:
    """A lock on the file ``path``. The file is created if it is missing, and this class never removes it.

    Two objects exclude each other even within one program, so threads are safe if each uses its own object. The methods
    that lock raise OSError if the file cannot be opened, if other users can change it, or if its file system does not
    support locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    @property
    def is_locked(self) -> bool:
        """Whether this process holds the lock through this object. False in a forked child."""
        return self._fd is not None

    def try_shared(self) -> bool:
        """Take the lock in shared mode. Return False if another holder has it in exclusive mode."""
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Take the lock in exclusive mode. Return False if there is another holder."""
        return self._try(fcntl.LOCK_EX)

    def acquire_exclusive(self, timeout_s: float) -> None:
        """Take the lock in exclusive mode, and write this process's id to the file.

        Raises TimeoutError if the lock is not free within ``timeout_s`` seconds.
        """
        deadline = time.monotonic() + timeout_s
        while not self.try_exclusive():
            if time.monotonic() > deadline:
                holder = self._holder() or "unknown"
                raise TimeoutError(f"process {holder} has held the lock {self.path} for more than {timeout_s:g} s")
            time.sleep(_POLL_S)
        os.ftruncate(self.fileno(), 0)
        os.pwrite(self.fileno(), f"{os.getpid()}\n".encode(), 0)

    def _holder(self) -> str:
        with open(self.path, opener=open_private) as file:
            return file.read().strip()

    def is_only_holder(self) -> bool:
        """Return whether there is no other holder of this lock, which must be held in shared mode.

        The lock is released for a moment. So the caller must prevent others from taking it, by another lock.
        """
        try:
            fcntl.flock(self.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
        # Needed after a failure, too: flock drops the shared lock before it tries to take the exclusive one.
        fcntl.flock(self.fileno(), fcntl.LOCK_SH)
        return alone

    def is_current(self) -> bool:
        """Return whether the path still names the locked file. The file may have been deleted after it was opened."""
        try:
            return os.path.samestat(os.fstat(self.fileno()), self.path.lstat())
        except FileNotFoundError:
            return False

    def fileno(self) -> int:
        if self._fd is None:
            raise ValueError(f"{self.path} is not locked by this process")
        return self._fd

    def release(self) -> None:
        """Release the lock, also for processes that have inherited it."""
        with _guard:
            if self._fd is not None:
                # Closing alone would not release the lock if a C library has forked and the child has a copy.
                fcntl.flock(self._fd, fcntl.LOCK_UN)
                self.detach()

    def detach(self) -> None:
        """Close this process's copy only. A process that inherited the lock keeps it."""
        with _guard:
            if self._fd is not None:
                _open_locks.discard(self)
                os.close(self._fd)
                self._fd = None

    def _try(self, operation: int) -> bool:
        if self._fd is not None:
            raise ValueError(f"{self.path} is already locked through this object")
        with _guard:
            # Python opens files close-on-exec: no program that this process starts inherits the lock.
            self._fd = open_private(self.path, os.O_RDWR | os.O_CREAT)
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
    """Return whether the lock on the file at ``path`` is free. Takes the lock for a moment."""
    probe = FileLock(path)
    if not probe.try_exclusive():
        return False
    probe.release()
    return True


def holders(path: Path, program: str) -> Iterator[int]:
    """Yield the id of each process that has the lock file open and runs a program whose name starts with ``program``.

    Yields nothing if the system has no /proc.
    """
    with suppress(FileNotFoundError):
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            if _is_holder(int(pid), path, program):
                yield int(pid)


def signal_holders(path: Path, program: str, signal_number: int) -> None:
    """Send the signal to the processes of `holders`, and to no other process."""
    for pid in holders(path, program):
        with suppress(ProcessLookupError):
            # A process number may be reused; a descriptor always refers to the same process. So the check after the
            # descriptor was opened is still valid when the signal arrives.
            process = os.pidfd_open(pid)
            try:
                if _is_holder(pid, path, program):
                    signal.pidfd_send_signal(process, signal_number)
            finally:
                os.close(process)


def _is_holder(pid: int, path: Path, program: str) -> bool:
    # Processes of other users, and processes that have just ended, are not holders.
    with suppress(OSError):
        if Path(os.readlink(f"/proc/{pid}/exe")).name.startswith(program):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                opened = os.readlink(f"/proc/{pid}/fd/{fd}")
                # Linux marks a file that was deleted after it was opened.
                if opened.removesuffix(" (deleted)") == str(path):
                    return True
    return False


def _after_fork_in_child() -> None:
    # The child has copies of the parent's locks. Unlocking them would release the parent's locks, and keeping them open
    # would keep the locks after the parent's end. Closing does neither.
    global _guard
    _guard = threading.RLock()
    for lock in tuple(_open_locks):
        lock.detach()


if hasattr(os, "register_at_fork"):
    # Prevents a fork between opening a file and adding it to _open_locks.
    os.register_at_fork(
        before=lambda: _guard.acquire(),
        after_in_parent=lambda: _guard.release(),
        after_in_child=_after_fork_in_child,
    )
