"""Election on one host: the process that holds the lock on a file drives the shard.

The lock ends with its process, even if the process is killed, so another process takes over immediately. The lock does
not exclude processes of other hosts or of other users; the fence makes two leaders harmless. A process that releases a
lock removes the file. A killed process leaves the file, which is empty, and the next process reuses it.
"""

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event

from tickwheel.election.claims import EpochClaims
from tickwheel.election.election import OnFenced, UnwatchedLeadership
from tickwheel.election.lock_folder import former_lock, lock_folder
from tickwheel.embedded.file_lock import FileLock
from tickwheel.runtime.private_file import check_single_name

_log = logging.getLogger("tickwheel.event_process")

# Interval at which a waiting process tries to lock; each attempt is one system call.
RETRY_SECONDS = 0.1


class LockFileElection:
    """One lock file for each shard: the file of shard 3 is ``path`` with `.3` appended.

    Earlier versions have the default lock file in the folder for temporary files. If ``path`` is the default, a leader
    holds that lock, too, so that processes of both versions have one leader. Another user can create a file with that
    name; such a file is ignored.
    """

    kind = "lockfile"
    # A lock file has no data.
    unreadable_nodes = 0
    must_check_namespace = True

    def __init__(self, path: str | os.PathLike[str], *, is_embedded: bool = False) -> None:
        """``is_embedded``: the shards are on the embedded server of a data directory."""
        self._path = Path(path)
        self._is_embedded = is_embedded
        self._former = former_lock(self._path)
        self._warned = False

    def acquire(
        self, shard: int, stop: Event, on_loss: Callable[[], None] | None = None
    ) -> "LockFileLeadership | None":
        """Wait for the lock. The leadership has no epoch of its own, and ``on_loss`` is never called.

        Raises OSError if the file cannot be opened, if other users can change it, or if the file system does not
        support locks.
        """
        lock = _wait_for_lock(_of_shard(self._path, shard), stop)
        if lock is None or self._former is None:
            return None if lock is None else self._lead(lock)
        # Invariant: a process waits for the former lock only while it holds the other one, so no two processes wait for
        # each other.
        try:
            former = _wait_for_lock(_of_shard(self._former, shard), stop, check_single_name)
        except OSError as error:
            self._warn(error)
            return self._lead(lock)
        if former is not None:
            return self._lead(lock, former)
        lock.release()
        return None

    def resign(self, shard: int) -> bool:
        """Return False: if one process of a host cannot reach a shard, the others cannot either."""
        return False

    def leave(self) -> None:
        """Do nothing: a process that waits for a lock gets it as soon as the lock is released."""

    def _lead(self, *locks: FileLock) -> "LockFileLeadership":
        return LockFileLeadership(*locks, is_embedded=self._is_embedded)

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "the lock file of earlier versions of Tickwheel is ignored: %s. Event processes of this version exclude"
                " each other by %s. If an event process of an earlier version runs, replace it",
                *(error, self._path),
            )

    def close(self) -> None:
        """Do nothing: there are no resources besides the leaderships."""


class LockFileLeadership(UnwatchedLeadership):
    """A held lock. It cannot be lost while the process lives."""

    on_fenced = OnFenced.END
    lost = False

    def __init__(self, *locks: FileLock, is_embedded: bool = False) -> None:
        self.claims = EpochClaims(None, is_embedded=is_embedded)
        self._locks = locks

    def release(self) -> None:
        """Remove the files of the locks, and release the locks."""
        for lock in self._locks:
            if lock.is_locked:
                # If the file was removed meanwhile, the path can name the file of another leader.
                if lock.is_current():
                    lock.path.unlink(missing_ok=True)
                lock.release()


def default_lock(url: str | None, namespace: str, data_dir: Path | None = None) -> Path:
    """Return the default path of the lock files that elect the event process of a namespace.

    The path is in the data directory of an embedded server. For a server with a URL, the path is in `lock_folder`, and
    contains a hash of URL and namespace.
    """
    if data_dir is not None:
        return data_dir / f"event-process-{namespace}.lock"
    tag = hashlib.sha256(f"{url or ''}\0{namespace}".encode()).hexdigest()[:16]
    return lock_folder() / f"tickwheel-{tag}.lock"


def _of_shard(path: Path, shard: int) -> Path:
    return path.with_name(f"{path.name}.{shard}")


def _wait_for_lock(path: Path, stop: Event, check: Callable[[Path], None] | None = None) -> FileLock | None:
    """Return the lock on the file; None if ``stop`` is set first. Call ``check`` whenever another process holds it."""
    while not stop.is_set():
        lock = _try_lock(path)
        if lock is not None:
            return lock
        if check is not None:
            check(path)
        stop.wait(RETRY_SECONDS)
    return None


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
