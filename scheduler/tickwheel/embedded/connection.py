"""Connections to an embedded server, which are refused if the server runs as another user.

The path of a socket can lead through the temporary directory (`server.py`). Each new connection follows this path,
whose folders were checked only when the directory was opened, so another user might have replaced a folder since then.
"""

import os
import socket
import sys
from collections.abc import Collection
from struct import Struct

from redis.asyncio.connection import UnixDomainSocketConnection as AsyncUnixConnection
from redis.connection import UnixDomainSocketConnection

from tickwheel.runtime.private_file import UnsafePath

# Process, user and group: `struct ucred` of Linux.
_CREDENTIALS = Struct("3i")


class EmbeddedConnection(UnixDomainSocketConnection):
    """A blocking connection to a server of this user or of root."""

    def _connect(self) -> socket.socket:
        connection: socket.socket = super()._connect()  # type: ignore[no-untyped-call]  # redis-py has no type here
        try:
            check_peer(connection, self.path)
        except BaseException:
            connection.close()
            raise
        return connection


class AsyncEmbeddedConnection(AsyncUnixConnection):
    """An asyncio connection to a server of this user or of root."""

    async def on_connect(self) -> None:
        """Check the server before redis-py sends anything."""
        assert self._writer is not None
        try:
            check_peer(self._writer.get_extra_info("socket"), self.path)
        except BaseException:
            await self.disconnect(nowait=True)
            raise
        await super().on_connect()


def check_peer(connection: socket.socket, path: str, allowed: Collection[int] | None = None) -> None:
    """Raise UnsafePath if the server at the other end runs as a user that is not ``allowed``.

    ``allowed`` is by default this user and root. Only Linux names the user of the server; on other systems, every
    server is accepted.
    """
    if sys.platform != "linux":
        return
    users = {os.geteuid(), 0} if allowed is None else set(allowed)
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user not in users:
        raise UnsafePath(
            f"the server at {path} runs as the user {user}, and an embedded server as one of the users"
            f" {sorted(users)}. Nothing was sent. Find out who has replaced a folder in this path"
        )
