"""Election on one host: the process that holds the lock on a file drives the shard.

The lock ends with its process, even if the process is killed, so another process takes over immediately. The lock does
not exclude processes of other hosts; the fence makes two leaders harmless. A process that releases a lock removes the
file. A killed process leaves the file, which is empty, and the next process reuses it.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Event

from tickwheel.embedded.file_lock import FileLock

# Interval at which a waiting process tries to lock; each attempt is one system call.
RETRY_SECONDS = 0.1


class LockFileElection:
    """One lock file for each shard: the file of shard 3 is ``path`` with `.3` appended."""

    kind = "lockfile"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def acquire(
        self, shard: int, stop: Event, on_loss: Callable[[], None] | None = None
    ) -> "LockFileLeadership | None":
        """Wait for the lock. The leadership has no epoch of its own, and ``on_loss`` is never called.

        Raises OSError if the file cannot be opened or the file system does not support locks.
        """
        path = self._path.with_name(f"{self._path.name}.{shard}")
        while not stop.is_set():
            lock = _try_lock(path)
            if lock is not None:
                return LockFileLeadership(lock)
            stop.wait(RETRY_SECONDS)
        return None

    def resign(self, shard: int) -> bool:
        """Return False: if one process of a host cannot reach a shard, the others cannot either."""
        return False

    def leave(self) -> None:
        """Do nothing: a process that waits for a lock gets it as soon as the lock is released."""

    def close(self) -> None:
        """Do nothing: there are no resources besides the leaderships."""


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


def default_lock(url: str | None, namespace: str, data_dir: Path | None = None) -> Path:
    """Return the default path of the lock files that elect the event process of a namespace.

    The path is in the data directory of an embedded server. For a server with a URL, the path is in the folder for
    temporary files of this host, and contains a hash of URL and namespace.
    """
    if data_dir is not None:
        return data_dir / f"event-process-{namespace}.lock"
    tag = hashlib.sha256(f"{url or ''}\0{namespace}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tickwheel-{tag}.lock"


def _try_lock(path: Path) -> FileLock | None:
    """Return the lock on the file; None if another process holds it."""
    lock = FileLock(path)
    if not lock.try_exclusive():
        return None
    # Invariant: the lock is on the file that the path names. The previous holder may have removed the file after this
    # process opened it.
    if lock.is_current():
        return lock
    lock.release()
    return None
