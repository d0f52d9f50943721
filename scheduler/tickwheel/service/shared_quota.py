"""The use of tokens by all processes of a service, in memory that the processes share.

So the rate and the waiting calls of a token are limited over all processes. The memory has a row for each token. Each
process counts its waiting calls in a column of its own: the successor of a killed process sets the column to zero.
"""

import fcntl
import logging
import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Final

from tickwheel.runtime.log_fields import log_fields
from tickwheel.runtime.shared_memory import create_shared_memory
from tickwheel.service.token_quota import ConcurrencyLimit, LocalCounters, TokenBucket

ROWS: Final = 16_384
_DIGEST_BYTES: Final = 32
_BUCKET_BYTES: Final = 2 * 8
_COUNT_BYTES: Final = 4
# A process holds a row for microseconds. If a process was stopped (SIGSTOP) in that time, the others continue without
# the lock after this time, and may then count a call wrongly.
_LOCK_S: Final = 0.1
_FREE: Final = bytes(_DIGEST_BYTES)
_log = logging.getLogger("tickwheel.service")


class SharedQuotas:
    """The memory of ``processes`` processes, as process number ``process`` uses it.

    Without ``fd``, the memory is new. A child process passes the inherited descriptor of its parent's memory.
    """

    def __init__(self, processes: int, process: int | None = None, fd: int | None = None) -> None:
        rows = ROWS * (_DIGEST_BYTES + _BUCKET_BYTES)
        column = ROWS * _COUNT_BYTES
        size = rows + processes * column
        if fd is None:
            fd = create_shared_memory(size)
        self.fd = fd
        self._process = process
        memory = memoryview(mmap.mmap(fd, size))
        self._digests = memory[: ROWS * _DIGEST_BYTES]
        # The level and the time of the update of each bucket.
        self._buckets = memory[ROWS * _DIGEST_BYTES : rows].cast("d")
        self._waiting = [memory[rows + n * column : rows + (n + 1) * column].cast("I") for n in range(processes)]
        if process is not None:
            # The process that had this number before was killed, and its calls have ended.
            first = rows + process * column
            memory[first : first + column] = bytes(column)

    def counters(self, digest: bytes) -> LocalCounters:
        """Return the counters of the token. Every process finds the same row for a token."""
        row = self._find_row(digest)
        if row is None:
            _log.warning(
                "the service has had more than %d tokens since its start: each process limits further tokens"
                " separately. Restart the service",
                ROWS,
                extra=log_fields("too many tokens"),
            )
            return LocalCounters()
        return SharedCounters(self, row)

    def read_bucket(self, row: int) -> tuple[float, float]:
        """Return the level of the token's bucket, and the time of its update; zero if there was none."""
        return self._buckets[2 * row], self._buckets[2 * row + 1]

    def write_bucket(self, row: int, level: float, updated_at: float) -> None:
        self._buckets[2 * row], self._buckets[2 * row + 1] = level, updated_at

    def waiting(self, row: int) -> int:
        """Return the number of waiting calls of the token in all processes."""
        return sum(column[row] for column in self._waiting)

    def add_waiting(self, row: int, count: int) -> None:
        # Only this process writes to its column, so the sum needs no lock.
        assert self._process is not None
        self._waiting[self._process][row] += count

    @contextmanager
    def lock(self, row: int) -> Iterator[None]:
        """Exclude other processes from the row. The system releases the lock if this process is killed."""
        # These locks belong to a process. The locks of `flock` belong to the inherited descriptor, so they would not
        # exclude the other processes.
        deadline = 0.0
        while True:
            try:
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, row)
                break
            except (BlockingIOError, PermissionError):
                deadline = deadline or time.monotonic() + _LOCK_S
                if time.monotonic() > deadline:
                    break
                time.sleep(0)
        try:
            yield
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, row)

    def _find_row(self, digest: bytes) -> int | None:
        """Return the row of the token, or take a free row for it. None if there is no free row."""
        first = int.from_bytes(digest[:8], "big") % ROWS
        # Row ROWS does not exist. Its lock is for the digests of all rows.
        with self.lock(ROWS):
            for row in chain(range(first, ROWS), range(first)):
                place = slice(row * _DIGEST_BYTES, (row + 1) * _DIGEST_BYTES)
                if self._digests[place] == _FREE:
                    self._digests[place] = digest
                if self._digests[place] == digest:
                    return row
        return None


class SharedCounters(LocalCounters):
    """The counters of one token, in the memory that the processes share."""

    def __init__(self, quotas: SharedQuotas, row: int) -> None:
        self._quotas = quotas
        self._row = row

    def make_bucket(self, rate: float, burst: float, now: float) -> TokenBucket:
        return _SharedBucket(rate, burst, now, self._quotas, self._row)

    def make_wait_limit(self, holder: str) -> ConcurrencyLimit:
        return _SharedWaitLimit(holder, self._quotas, self._row)


class _SharedBucket(TokenBucket):
    def __init__(self, rate: float, burst: float, now: float, quotas: SharedQuotas, row: int) -> None:
        super().__init__(rate, burst, now)
        self._quotas = quotas
        self._row = row
        with quotas.lock(row):
            if not quotas.read_bucket(row)[1]:
                quotas.write_bucket(row, burst, now)

    def take(self, count: int, now: float, *, always: bool = False) -> float:
        with self._quotas.lock(self._row):
            # All processes of a host have the same monotonic clock.
            self._level, self._updated_at = self._quotas.read_bucket(self._row)
            seconds = super().take(count, now, always=always)
            self._quotas.write_bucket(self._row, self._level, self._updated_at)
        return seconds


class _SharedWaitLimit(ConcurrencyLimit):
    def __init__(self, holder: str, quotas: SharedQuotas, row: int) -> None:
        super().__init__(None, holder)
        self._quotas = quotas
        self._row = row

    @contextmanager
    def acquire(self) -> Iterator[None]:
        with self._quotas.lock(self._row):
            self.check(self._quotas.waiting(self._row))
            self._quotas.add_waiting(self._row, 1)
        self.in_use += 1
        try:
            yield
        finally:
            self.in_use -= 1
            self._quotas.add_waiting(self._row, -1)
