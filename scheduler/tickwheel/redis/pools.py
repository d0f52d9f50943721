"""Blocking connections: a pool for each server of a URL, created at the first use, and the topology of the cluster."""

import random
import threading
from collections.abc import Collection
from functools import partial
from importlib.util import find_spec
from typing import Any

from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.exceptions import BusyLoadingError, InvalidResponse, RedisError
from redis.retry import Retry

from tickwheel.embedded.connection import EmbeddedConnection
from tickwheel.plan import BROKEN_ANSWER
from tickwheel.redis.encryption import check_server
from tickwheel.redis.replies import CONNECTION_ERRORS, LOST_CONNECTION, raise_if_permanent
from tickwheel.redis.topology import Topology
from tickwheel.redis.url import node_url, servers

# The longest wait for one answer. If no answer arrives in this time, the connection counts as lost and the call is sent
# again.
ANSWER_S = 5.0
# A new connection does not send CLIENT SETINFO. Redis 7.0 does not know this command, and rejects an ACL file with it.
_WITHOUT_SETINFO: dict[str, None] = (
    {"lib_name": None, "lib_version": None} if find_spec("redis.driver_info") is None else {"driver_info": None}
)
# The maximum number of servers that one refresh asks for the slots, so that the caller can check its timeout soon.
MAX_REFRESH_NODES = 2


# The longest wait for each step in which a connection of this thread is opened, if the call is short.
_opening = threading.local()


class _OpensInTime:
    """The part of a connection's class that limits how long it takes to open, by `_opening`.

    The pool of redis-py opens connections, and has the same timeout for all of them.
    """

    socket_timeout: float | None
    socket_connect_timeout: float | None

    def connect(self) -> None:
        timeouts = self.socket_timeout, self.socket_connect_timeout
        if (seconds := getattr(_opening, "seconds", None)) is not None:
            self.socket_timeout = self.socket_connect_timeout = seconds
        try:
            super().connect()  # type: ignore[misc]  # the other base class has the method
        finally:
            self.socket_timeout, self.socket_connect_timeout = timeouts


class ConnectionPools:
    """The connections of one client. Safe to share between threads."""

    def __init__(self, url: str, answer_s: float = ANSWER_S, *, is_embedded: bool = False) -> None:
        """``answer_s`` limits the wait for one answer of a server. The upper bound is ANSWER_S.

        ``is_embedded``: the server is an embedded server, so it must run as this user or as root.
        """
        self.topology = Topology(servers(url), partial(check_server, url))
        self._url = url
        self._is_embedded = is_embedded
        self.answer_s = min(ANSWER_S, answer_s)
        self._pools: dict[str, ConnectionPool] = {}
        self._lock = threading.Lock()
        self._refresh_lock = threading.Lock()

    def pool(self, server: str) -> ConnectionPool:
        """Return the pool of connections to a server. Raises TickwheelError as `check_server` does."""
        pool = self._pools.get(server)
        if pool is None:
            with self._lock:
                pool = self._pools.get(server) or self._create_pool(server)
                self._pools[server] = pool
        return pool

    def acquire(self, server: str, answer_s: float) -> Any:
        """Return a connection to a server, on which each answer must arrive within ``answer_s``.

        The same limit applies to each step in which a new connection is opened. The caller must release the connection
        to its pool.
        """
        if answer_s < self.answer_s:
            _opening.seconds = answer_s
        try:
            connection: Any = self.pool(server).get_connection()
        finally:
            _opening.seconds = None
        # redis-py has no public method for this. It does not restore the timeout of the call that opened the connection
        # or used it before.
        answer_s = min(answer_s, self.answer_s)
        if connection._sock.gettimeout() != answer_s:
            connection._sock.settimeout(answer_s)
        return connection

    def open_subscriber(self, server: str) -> Any:
        """Return a new connection, outside the pool, to listen on."""
        pool = self.pool(server)
        connection: Any = pool.connection_class(**pool.connection_kwargs)
        connection.connect()
        return connection

    def refresh_slots(self, unresponsive: Collection[str] = (), answer_s: float | None = None) -> None:
        """Read the cluster's slots from a server that answers. Servers that were ``unresponsive`` are tried last.

        ``answer_s``: see `acquire`. Raises the error of the last server if none answers.
        """
        version, answer_s = self.topology.version, self.answer_s if answer_s is None else answer_s
        # The thread that holds the lock tries several servers.
        if not self._refresh_lock.acquire(timeout=answer_s * MAX_REFRESH_NODES):
            raise TimeoutError("another thread still reads the slots of the cluster")
        try:
            if self.topology.version != version:
                # Another thread has read the slots in the meantime.
                return
            failed: Exception | None = None
            for server in refresh_order(self.topology, unresponsive):
                try:
                    self.topology.update_from_cluster_slots(self._read_slots(server, answer_s), server)
                    return
                except CONNECTION_ERRORS as error:
                    raise_if_permanent(error)
                    failed = error
            assert failed is not None
            raise failed
        finally:
            self._refresh_lock.release()

    def close(self) -> None:
        with self._lock:
            for pool in self._pools.values():
                pool.disconnect()

    def _create_pool(self, server: str) -> ConnectionPool:
        # Also for the servers that redirects name.
        check_server(self._url, server)
        url = node_url(self._url, server)
        pool = ConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0), **settings(self.answer_s))
        if self._is_embedded:
            pool.connection_class = EmbeddedConnection
        pool.connection_class = type("Connection", (_OpensInTime, pool.connection_class), {})
        return pool

    def _read_slots(self, server: str, answer_s: float) -> object:
        connection = self.acquire(server, answer_s)
        try:
            connection.send_command("CLUSTER", "SLOTS")
            return connection.read_response()
        finally:
            self.pool(server).release(connection)


def settings(answer_s: float) -> dict[str, Any]:
    """Return the settings of every connection, blocking or asyncio. The pools turn redis-py's own retries off."""
    timeouts = {"socket_timeout": answer_s, "socket_connect_timeout": answer_s}
    return {"protocol": 2, "max_connections": 65_536} | timeouts | _WITHOUT_SETINFO


def refresh_order(topology: Topology, unresponsive: Collection[str]) -> list[str]:
    """Return the servers to ask for the slots: in random order, unresponsive ones last, at most MAX_REFRESH_NODES."""
    nodes = topology.all_nodes()
    random.shuffle(nodes)
    return sorted(nodes, key=lambda server: server in unresponsive)[:MAX_REFRESH_NODES]


def read_answer(connection: Any) -> object:
    """Return the next answer. An error of the server is returned as a value; a lost connection raises."""
    try:
        return connection.read_response(disconnect_on_error=False)
    except BusyLoadingError as error:
        return error
    except BROKEN_ANSWER as error:
        # Of an answer that is not in the protocol. The connection counts as lost.
        raise InvalidResponse(f"an answer cannot be read: {error!r:.200}") from error
    except LOST_CONNECTION:
        raise
    except RedisError as error:
        return error
