"""Listens to pub/sub channels of one shard, on a separate connection. So the forwarder does not poll an idle shard."""

import select
from collections.abc import Callable, Iterable
from typing import Any, Final

from redis.exceptions import ConnectionError as RedisConnectionError

from tickwheel.runtime.time import monotonic_ms

CONFIRMED_MS: Final = 5_000.0
# Notifications that one poll reads. A client can send them faster than they are read.
_READS_OF_A_POLL: Final = 1_000


class ChannelListener:
    """Subscriptions to channels. After any failure, create a new listener: notifications may have been missed."""

    def __init__(
        self,
        connection: Any,
        wake: int,
        confirmed_ms: float = CONFIRMED_MS,
        on_payload: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """``connection`` is a connection of redis-py that nobody else uses. The listener opens and closes it.

        ``wake`` is a file descriptor that becomes readable to end a wait. ``on_payload`` gets the text of each
        notification, before `poll` returns.

        If the server does not confirm a subscription within ``confirmed_ms``, the connection counts as lost.
        """
        self._confirmed_ms = confirmed_ms
        self._on_payload = on_payload
        self._connection = connection
        self._connection.connect()
        self._subscribed: set[str] = set()
        self._unconfirmed: set[str] = set()
        self._published: set[str] = set()
        self._poll = select.poll()
        self._poll.register(wake, select.POLLIN)
        self._poll.register(self._connection._sock, select.POLLIN)
        # Returns the number of unread decrypted bytes in a TLS socket. `poll` does not report such bytes.
        self._tls_pending: Callable[[], int] = getattr(self._connection._sock, "pending", int)

    def close(self) -> None:
        self._connection.disconnect()

    def set_channels(self, channels: Iterable[str]) -> None:
        """Subscribe to exactly these channels. Returns when the server has confirmed the changes."""
        target = set(channels)
        self._change("SSUBSCRIBE", target - self._subscribed)
        self._change("SUNSUBSCRIBE", self._subscribed - target)
        self._subscribed = target

    def poll(self, until_ms: float) -> set[str]:
        """Return the channels with notifications. Waits for a notification or a wake-up, at most until ``until_ms``."""
        # The parser can hold notifications that the previous poll did not read.
        if not (self._published or self._tls_pending() or self._connection.can_read(0)):
            self._poll.poll(max(0.0, until_ms - monotonic_ms()))
        for _ in range(_READS_OF_A_POLL):
            if not self._connection.can_read(0):
                break
            self._read()
        published, self._published = self._published, set()
        return published & self._subscribed

    def _change(self, command: str, channels: set[str]) -> None:
        if not channels:
            return
        self._connection.send_command(command, *channels)
        self._unconfirmed = set(channels)
        until = monotonic_ms() + self._confirmed_ms
        while self._unconfirmed:
            if not self._connection.can_read(max(0.0, until - monotonic_ms()) / 1000):
                raise RedisConnectionError("the server did not confirm a subscription in time")
            self._read()

    def _read(self) -> None:
        answer: Any = self._connection.read_response(disable_decoding=True)
        kind, channel = answer[0], answer[1].decode()
        if kind == b"smessage":
            self._published.add(channel)
            self._on_payload(answer[2])
        elif channel in self._unconfirmed:
            self._unconfirmed.discard(channel)
        else:
            raise RedisConnectionError("the server has ended a subscription: the shard has moved to another server")
