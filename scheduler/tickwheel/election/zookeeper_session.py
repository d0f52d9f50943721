"""A session with an ensemble of ZooKeeper servers that never hangs: every question has a deadline, ending has one, and
the connection is sought for ever.

Nothing is sent twice here. Who asked looks again at how things stand: right, whatever has become of the question.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.exceptions import ZookeeperError as ZooKeeperError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from tickwheel.election.zookeeper_url import ZooKeeperUrl

# Waits between attempts to connect, doubling from the first to the last, with jitter.
CONNECT_BACKOFF_S: Final = (0.1, 1.0)
# How long ending the session may take. One that is not ended so expires.
CLOSE_S: Final = 1.0
_NO_ANSWER = (ConnectionLoss, SessionExpiredError, ConnectionClosedError, OperationTimeoutError, KazooTimeoutError)
# Of a transaction, what stands beside the one refusal that undid it.
_ROLLED_BACK = (RolledBackError, RuntimeInconsistency)


class ZooKeeperUnavailable(Exception):
    """ZooKeeper did not answer, or the session has ended: what was asked may have happened."""


class ZooKeeperSession:
    """One client; after its session has expired it makes another by itself."""

    def __init__(self, url: ZooKeeperUrl, on_state: Callable[[str], None]) -> None:
        """``on_state`` is told each state of kazoo's, in its thread: it must not block."""
        first, longest = CONNECT_BACKOFF_S
        self.client = KazooClient(
            hosts=",".join(url.hosts),
            timeout=url.session_timeout_s,
            connection_retry={"max_tries": -1, "delay": first, "max_delay": longest},
            logger=logging.getLogger("tickwheel.kazoo"),
        )
        self.client.add_listener(self._on_connection_state)
        self.client.add_listener(on_state)
        self._connected = False
        self._disconnected_since = time.monotonic()
        self._timeout_s = url.session_timeout_s

    def open(self) -> None:
        """Begin to connect."""
        self.client.start_async()

    def await_all(self, requests: Sequence[Any]) -> list[Any]:
        """The answers to what was asked together: what it gave, or the error with which ZooKeeper refused it.

        Raises Away where one did not come.
        """
        deadline = time.monotonic() + self._timeout_s
        results: list[Any] = []
        for request in requests:
            try:
                results.append(request.get(timeout=max(0.0, deadline - time.monotonic())))
            except _NO_ANSWER as error:
                raise ZooKeeperUnavailable(f"{type(error).__name__} {error}".strip()) from error
            except ZooKeeperError as refusal:
                results.append(refusal)
        return results

    def await_result(self, request: Any, node: str) -> Any:
        """The answer to one question about a node. Raises as `accepted` does."""
        [result] = self.await_all([request])
        return self.result_or_raise(result, node)

    @staticmethod
    def result_or_raise(result: Any, node: str) -> Any:
        """An answer about a node, or of a transaction. Raises what ZooKeeper refused it with, naming the node."""
        for item in result if isinstance(result, list) else [result]:
            if isinstance(item, ZooKeeperError) and not isinstance(item, _ROLLED_BACK):
                raise type(item)(node)
        return result

    def keep_connecting(self) -> None:
        """There is no session. Where that lasts longer than one lives, accept a server that knows less than this client
        has seen, as one does whose data was lost.

        One that only lags behind is accepted, too, and does no harm: epochs are raised over what the leader knows.
        """
        if not self._connected and time.monotonic() - self._disconnected_since > self._timeout_s:
            self.client.last_zxid = 0

    def unresolved_hosts(self) -> list[str]:
        """Which servers' names have no address now, and why."""
        problems = []
        for host, port in self.client.hosts:
            try:
                socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)
            except socket.gaierror as error:
                problems.append(f"{host} has no address: {error.strerror}")
        return problems

    def raise_epoch(self, node: str, candidate: str, owner: bytes) -> Any:
        """Ask for the next epoch, the node's next version. It is refused where the candidate is not there any more."""
        transaction = self.client.transaction()
        # Invariant: who was paused since it looked, and has lost its session, changes nothing.
        transaction.check(f"{node}/{candidate}", version=0)
        transaction.set_data(node, owner)
        return transaction.commit_async()

    def close(self) -> None:
        """End the session, which removes its nodes at once."""

        def stop() -> None:
            self.client.stop()
            self.client.close()

        stopping = threading.Thread(target=stop, name="tickwheel-zookeeper-close", daemon=True)
        stopping.start()
        stopping.join(CLOSE_S)

    def _on_connection_state(self, state: str) -> None:
        if self._connected:
            self._disconnected_since = time.monotonic()
        self._connected = state == KazooState.CONNECTED
