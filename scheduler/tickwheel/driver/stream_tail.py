"""Follows a shard's inbox, or its outbox, by a blocking read that is always under way, on a connection of its own.

So new entries wake the process at once and an idle shard costs nothing. How long to wait is timed here, by the
process's clock: the server's own time-outs are only as fine as its `hz`.
"""

import select
import socket
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from redis.exceptions import ConnectionError as RedisConnectionError

from tickwheel.driver.commands import ReadStream
from tickwheel.runtime.time import monotonic_ms

# The server ends a blocking read after so long; one that is not answered by the second is dead.
BLOCK_MS: Final = 2_500
DEAD_MS: Final = 5_000
# While entries keep coming, reads follow each other no faster: round trips are the cost.
COALESCE_MS: Final = 3.0

Entries = list[tuple[bytes, bytes]]


class RawConnection(Protocol):
    """The part of redis-py's connections that is used here; it comes without types."""

    _sock: socket.socket

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def send_command(self, *command: bytes | str | int) -> None: ...
    def can_read(self, timeout: float) -> bool: ...
    def read_response(self, *, disable_decoding: bool) -> Any: ...


class StreamTail:
    """One blocking read after the other. Its connection is used for nothing else."""

    def __init__(self, connection: RawConnection, wake: int) -> None:
        """``wake`` is a file descriptor that becomes readable to end a wait."""
        self._connection = connection
        self._sent_at: float | None = None
        self._data_at = -COALESCE_MS
        self._poll = select.poll()
        self._poll.register(wake, select.POLLIN)
        self._poll.register(connection._sock, select.POLLIN)
        # How much a TLS socket holds that `poll` does not see.
        self._tls_pending: Callable[[], int] = getattr(connection._sock, "pending", int)

    def read(self, command: ReadStream) -> Entries:
        """The entries that have come, if any; waits for them as the command says."""
        if self._sent_at is None and not self._send(command):
            return []
        if not self._has_answer(command.until_ms):
            return []
        result = parse_entries(self._connection.read_response(disable_decoding=True))
        self._sent_at = None
        # After a full answer there is more: no reason to wait.
        self._data_at = monotonic_ms() if 0 < len(result) < command.count else -COALESCE_MS
        return result

    def _send(self, command: ReadStream) -> bool:
        earliest = self._data_at + COALESCE_MS
        if monotonic_ms() < earliest:
            if command.until_ms is None or command.until_ms < earliest:
                self._sleep(command.until_ms or 0)
                return False
            self._sleep(earliest)
        self._connection.send_command(
            *("XREAD", "COUNT", command.count, "BLOCK", BLOCK_MS),
            *("STREAMS", command.key, command.after),
        )
        self._sent_at = monotonic_ms()
        return True

    def _has_answer(self, until_ms: float | None) -> bool:
        assert self._sent_at is not None
        dead_at = self._sent_at + DEAD_MS
        if until_ms is not None and not self._tls_pending():
            self._sleep(min(until_ms, dead_at))
        if self._connection.can_read(0):
            return True
        if monotonic_ms() >= dead_at:
            raise RedisConnectionError("a blocking read was not answered")
        return False

    def _sleep(self, until_ms: float) -> None:
        """Until then, or until there is something to read. `poll` counts whole ms: the rest is slept."""
        rest = until_ms - monotonic_ms()
        if rest >= 1 and self._poll.poll(int(rest)):
            return
        rest = until_ms - monotonic_ms()
        if 0 < rest < 1:
            time.sleep(rest / 1000)


def parse_entries(reply: Any) -> Entries:
    """What XREAD of one stream returned: a list of streams, or in RESP3 a map."""
    if not reply:
        return []
    [items] = reply.values() if isinstance(reply, dict) else [reply[0][1]]
    return [(entry_id, fields[1]) for entry_id, fields in items]
