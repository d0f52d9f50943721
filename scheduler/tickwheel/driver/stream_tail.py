"""Follows a shard's inbox, or its outbox, by a blocking read that is always in flight, on a connection of its own.

So new entries wake the process immediately, and an idle shard costs almost nothing. The process measures the length of
its waits itself, because the server checks time-outs only `hz` times a second.
"""

import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from redis.exceptions import ConnectionError as RedisConnectionError

from tickwheel.driver.commands import ReadStream
from tickwheel.runtime.time import monotonic_ms

# The server ends a blocking read after BLOCK_MS. If there is no reply within DEAD_MS, the connection counts as dead.
BLOCK_MS: Final = 2_500
DEAD_MS: Final = 5_000
# Minimum time between reads while entries keep arriving: each round trip costs CPU time.
COALESCE_MS: Final = 3.0

Entries = list[tuple[bytes, bytes]]


class RawConnection(Protocol):
    """The part of redis-py's connections that this package uses; redis-py does not annotate it."""

    _sock: socket.socket

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def send_command(self, *command: bytes | str | int) -> None: ...
    def pack_commands(self, commands: Sequence[Sequence[bytes | str | int]]) -> list[bytes]: ...
    def send_packed_command(self, command: list[bytes]) -> None: ...
    def can_read(self, timeout: float) -> bool: ...
    def read_response(self, *, disable_decoding: bool) -> Any: ...


class StreamTail:
    """Sends one blocking read after the other. Its connection is used for nothing else."""

    def __init__(self, connection: RawConnection, wake: int) -> None:
        """``wake`` is a file descriptor that becomes readable to end a wait."""
        self._connection = connection
        self._sent_at: float | None = None
        self._data_at = -COALESCE_MS
        self._poll = select.poll()
        self._poll.register(wake, select.POLLIN)
        self._poll.register(connection._sock, select.POLLIN)
        # Returns the number of decrypted bytes in a TLS socket, which `poll` does not report.
        self._tls_pending: Callable[[], int] = getattr(connection._sock, "pending", int)

    def read(self, command: ReadStream) -> Entries:
        """Return the entries that have arrived, if any. Waits for entries until the command's ``until_ms``."""
        if self._sent_at is None and not self._send(command):
            return []
        if not self._has_answer(command.until_ms):
            return []
        result = parse_entries(self._connection.read_response(disable_decoding=True))
        self._sent_at = None
        # After a full reply there is more to read: do not wait.
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
            raise RedisConnectionError("the server did not answer a blocking read in time")
        return False

    def _sleep(self, until_ms: float) -> None:
        """Sleep until a moment, or until there is something to read. `poll` takes whole ms; `sleep` does the rest."""
        rest = until_ms - monotonic_ms()
        if rest >= 1 and self._poll.poll(int(rest)):
            return
        rest = until_ms - monotonic_ms()
        if 0 < rest < 1:
            time.sleep(rest / 1000)


def parse_entries(reply: Any) -> Entries:
    """Return the entries in the reply to an XREAD of one stream: a list of streams or, in RESP3, a map."""
    if not reply:
        return []
    [items] = reply.values() if isinstance(reply, dict) else [reply[0][1]]
    return [(entry_id, fields[1]) for entry_id, fields in items]
