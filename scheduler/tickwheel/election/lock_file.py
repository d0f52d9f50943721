"""Election on one host: whoever holds the lock on a file drives the shard.

The lock ends with its process, however that ends, so a killed leader is followed at once. A process of another host is
not kept out by it; the fence is what keeps two leaders from harm. Who gives a lock up removes its file; one that was
killed leaves it, empty, to the next.
"""

import os
from collections.abc import Callable
from pathlib import Path
from threading import Event

from tickwheel.embedded.file_lock import FileLock

# How often a waiting process tries: a try is one system call.
RETRY_SECONDS = 0.1


class LockFileElection:
    """One lock file a shard: that of shard 3 is ``path`` with `.3` appended."""

    kind = "lockfile"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def acquire(
        self, shard: int, stop: Event, on_loss: Callable[[], None] | None = None
    ) -> "LockFileLeadership | None":
        """Wait for the lock. Epochs come from the shard's counter; ``on_loss`` is never called.

        Raises OSError where the file cannot be opened or the file system has no locks.
        """
        path = self._path.with_name(f"{self._path.name}.{shard}")
        while not stop.is_set():
            lock = _try_lock(path)
            if lock is not None:
                return LockFileLeadership(lock)
            stop.wait(RETRY_SECONDS)
        return None

    def resign(self, shard: int) -> bool:
        """No: what one process of a host cannot reach, another cannot."""
        return False

    def leave(self) -> None:
        """Nothing to hand over: who waits for a lock has it as soon as it is released."""

    def close(self) -> None:
        """Nothing is left."""


class LockFileLeadership:
    """A held lock. It cannot be lost while the process lives."""

    epoch = None
    lost = False

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    def release(self) -> None:
        """Remove the file, and release the lock."""
        if self._lock.is_locked:
            self._lock.path.unlink(missing_ok=True)
            self._lock.release()


def _try_lock(path: Path) -> FileLock | None:
    """Return the lock on the file; None if another process holds it."""
    lock = FileLock(path)
    if not lock.try_exclusive():
        return None
    # Invariant: the lock is on the file that the path names. The holder before may have removed it since it was opened.
    if lock.is_current():
        return lock
    lock.release()
    return None
