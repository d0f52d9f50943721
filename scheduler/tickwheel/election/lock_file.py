"""Election on one host: whoever holds the lock on a file drives the shard.

The lock ends with its process, however that ends, so a killed leader is followed at once. A process of another host is
not kept out by it; the fence is what keeps two leaders from harm. Who gives a lock up removes its file; one that was
killed leaves it, empty, to the next.
"""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event

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
            file = _try_lock(path)
            if file is not None:
                return LockFileLeadership(file, path)
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

    def __init__(self, file: int, path: Path) -> None:
        self._file = file
        self._path = path

    def release(self) -> None:
        """Remove the file, and close it, which frees the lock."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def _try_lock(path: Path) -> int | None:
    """The file, opened and locked; None where another has it."""
    # Not inherited by programs that this one starts: they would hold the lock after it is gone.
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Invariant: the lock is on the file that the path names. It may have been removed since it was opened here.
        if os.path.samestat(os.fstat(file), path.stat()):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return None
