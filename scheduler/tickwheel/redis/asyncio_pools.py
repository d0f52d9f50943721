"""Connections to the servers of a URL, for asyncio: the same as `pools`, with `await`."""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Any

from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, InvalidResponse, RedisError

from tickwheel.embedded.connection import AsyncEmbeddedConnection
from tickwheel.plan import BROKEN_ANSWER
from tickwheel.redis.encryption import check_server
from tickwheel.redis.pools import ANSWER_S, MAX_REFRESH_NODES, refresh_order, settings
from tickwheel.redis.replies import CONNECTION_ERRORS, LOST_CONNECTION, raise_if_permanent
from tickwheel.redis.topology import Topology
from tickwheel.redis.url import node_url, servers


class AsyncConnectionPools:
    """The connections of one client, in one event loop."""

    def __init__(self, url: str, answer_s: float, *, is_embedded: bool = False) -> None:
        """``answer_s`` limits the wait for one answer of a server. The upper bound is `pools.ANSWER_S`.

        ``is_embedded``: the server is an embedded server, so it must run as this user or as root.
        """
        self.topology = Topology(servers(url), partial(check_server, url))
        self._url = url
        self._is_embedded = is_embedded
        self.answer_s = min(ANSWER_S, answer_s)
        self._pools: dict[str, Any] = {}
        self._refresh_lock = asyncio.Lock()

    def pool(self, server: str) -> Any:
        """Return the pool of connections to a server. Raises TickwheelError as `check_server` does."""
        pool = self._pools.get(server)
        if pool is None:
            # Also for the servers that redirects name.
            check_server(self._url, server)
            url = node_url(self._url, server)
            pool = ConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0), **settings(self.answer_s))
            if self._is_embedded:
                pool.connection_class = AsyncEmbeddedConnection
            self._pools[server] = pool
        return pool

    async def acquire(self, server: str, answer_s: float) -> Any:
        """Return a connection to a server. The caller must `release` the connection.

        Raises TimeoutError if a new connection takes longer than ``answer_s`` to open.
        """
        if answer_s < self.answer_s:
            async with asyncio.timeout(answer_s):
                connection = await self.pool(server).get_connection()
        else:
            connection = await self.pool(server).get_connection()
        # With a timeout, redis-py starts a task for every send. `send` and `answer` limit the time instead. `release`
        # restores the timeout, which limits the next attempt to connect.
        connection.socket_timeout = None
        return connection

    async def release(self, server: str, connection: Any) -> None:
        """Return a connection to its pool. A closed connection may be returned, too."""
        connection.socket_timeout = self.answer_s
        await self.pool(server).release(connection)

    async def send(self, connection: Any, packed: Any, answer_s: float) -> None:
        """Send commands. Raises TimeoutError if the server does not accept more data."""
        async with asyncio.timeout(answer_s):
            await connection.send_packed_command(packed)

    async def answer(self, connection: Any, answer_s: float) -> object:
        """Return the next answer, as `read_answer` does. Raises TimeoutError if no answer comes in time."""
        async with asyncio.timeout(answer_s):
            return await read_answer(connection)

    async def open_subscriber(self, server: str) -> Any:
        """Return a new connection, outside the pool, to listen on without a timeout."""
        pool = self.pool(server)
        connection = pool.connection_class(**pool.connection_kwargs)
        await connection.connect()
        # The timeout applies to connecting only.
        connection.socket_timeout = None
        return connection

    async def refresh_slots(self, unresponsive: Collection[str] = (), answer_s: float | None = None) -> None:
        """Read the cluster's slots from a server that answers. Servers that were ``unresponsive`` are tried last.

        ``answer_s``: see `acquire`. Raises the error of the last server if none answers.
        """
        version, answer_s = self.topology.version, self.answer_s if answer_s is None else answer_s
        # The task that holds the lock tries several servers.
        async with asyncio.timeout(answer_s * MAX_REFRESH_NODES):
            await self._refresh_lock.acquire()
        try:
            if self.topology.version != version:
                # Another task has read the slots in the meantime.
                return
            failed: Exception | None = None
            for server in refresh_order(self.topology, unresponsive):
                try:
                    self.topology.update_from_cluster_slots(await self._read_slots(server, answer_s), server)
                    return
                except CONNECTION_ERRORS as error:
                    raise_if_permanent(error)
                    failed = error
            assert failed is not None
            raise failed
        finally:
            self._refresh_lock.release()

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.disconnect()

    async def _read_slots(self, server: str, answer_s: float) -> object:
        connection = await self.acquire(server, answer_s)
        done = False
        try:
            async with asyncio.timeout(answer_s):
                await connection.send_command("CLUSTER", "SLOTS")
                answer: object = await connection.read_response()
            done = True
            return answer
        finally:
            if not done:
                await connection.disconnect(nowait=True)
            await self.release(server, connection)


async def read_answer(connection: Any) -> object:
    """Return the next answer. An error of the server is returned as a value; a lost connection raises."""
    try:
        return await connection.read_response(disconnect_on_error=False)
    except BusyLoadingError as error:
        return error
    except BROKEN_ANSWER as error:
        # Of an answer that is not in the protocol. The connection counts as lost.
        raise InvalidResponse(f"an answer cannot be read: {error!r:.200}") from error
    except LOST_CONNECTION:
        raise
    except RedisError as error:
        return error
