"""Connections to the servers of a URL, blocking: a pool for each, made when it is first used, and the cluster's map."""

import random
import threading
from collections.abc import Collection
from typing import Any

from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.exceptions import BusyLoadingError, RedisError
from redis.retry import Retry

from tickwheel.redis import url as urls
from tickwheel.redis.replies import LOST_CONNECTION, UNANSWERED, raise_refused
from tickwheel.redis.topology import Topology

# One answer takes no longer than this, or the connection counts as lost and the call is sent again.
ANSWER_S = 5.0
# So many servers are asked for the map before the caller looks at its clock again.
MAP_ASKED = 2


class ServerPools:
    """The connections of one client. Safe to share between threads."""

    def __init__(self, url: str, answer_s: float = ANSWER_S) -> None:
        """``answer_s`` is how long a server may take for one answer, at most ANSWER_S."""
        self.topology = Topology(urls.servers(url))
        self._url = url
        self._answer_s = answer_s
        self._pools: dict[str, ConnectionPool] = {}
        self._lock = threading.Lock()
        self._reading = threading.Lock()

    def pool(self, server: str) -> ConnectionPool:
        """The connections to one server."""
        found = self._pools.get(server)
        if found is None:
            with self._lock:
                found = self._pools.get(server) or self._made(server)
                self._pools[server] = found
        return found

    def listening(self, server: str) -> Any:
        """A connection of one's own to listen on."""
        found = self.pool(server)
        connection: Any = found.connection_class(**found.connection_kwargs)
        connection.connect()
        return connection

    def read_map(self, silent: Collection[str] = ()) -> None:
        """Read the cluster's map from a server that answers, of those that were not ``silent`` first.

        Raises what keeps the last of them from answering.
        """
        version = self.topology.version
        with self._reading:
            # Another thread was faster: its map is as new.
            if self.topology.version != version:
                return
            failed: Exception | None = None
            for server in in_turn(self.topology, silent):
                try:
                    self.topology.learn(self._ask(server, "CLUSTER", "SLOTS"), server)
                    return
                except UNANSWERED as error:
                    raise_refused(error)
                    failed = error
            assert failed is not None
            raise failed

    def close(self) -> None:
        with self._lock:
            for found in self._pools.values():
                found.disconnect()

    def _made(self, server: str) -> ConnectionPool:
        url = urls.of_server(self._url, server)
        return ConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0), **settings(self._answer_s))

    def _ask(self, server: str, *command: str) -> object:
        found = self.pool(server)
        connection: Any = found.get_connection()
        try:
            connection.send_command(*command)
            return connection.read_response()
        finally:
            found.release(connection)


def settings(answer_s: float) -> dict[str, int | float]:
    """What every connection is made with, blocking or not; each kind turns redis-py's own retries off itself."""
    most = min(ANSWER_S, answer_s)
    return {"protocol": 2, "socket_timeout": most, "socket_connect_timeout": most, "max_connections": 65_536}


def in_turn(topology: Topology, silent: Collection[str]) -> list[str]:
    """The servers to ask for the map, in a random order; those that were silent last."""
    known = topology.known()
    random.shuffle(known)
    return sorted(known, key=lambda server: server in silent)[:MAP_ASKED]


def read_answer(connection: Any) -> object:
    """The next answer; an error is a value here, unless it is the connection that is lost."""
    try:
        return connection.read_response(disconnect_on_error=False)
    except BusyLoadingError as error:
        return error
    except LOST_CONNECTION:
        raise
    except RedisError as error:
        return error
