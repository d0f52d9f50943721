"""A session with an ensemble of ZooKeeper servers. No call hangs: each request and `close` have a time limit.

The session tries to connect indefinitely. It sends no request twice: after a failure the caller reads the current nodes
again, which is right whether or not the request was executed.
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
    ZookeeperError as ZooKeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from tickwheel.election.zookeeper_url import ZooKeeperUrl

# Delays between attempts to connect: the first and the longest delay. A delay doubles after each attempt, with jitter.
CONNECT_BACKOFF_S: Final = (0.1, 1.0)
# Time limit for ending the session. A session that is not ended in this time expires.
CLOSE_S: Final = 1.0
_NO_ANSWER = (ConnectionLoss, SessionExpiredError, ConnectionClosedError, OperationTimeoutError, KazooTimeoutError)
# Results of the operations of a failed transaction, except for the operation that failed.
_ROLLED_BACK = (RolledBackError, RuntimeInconsistency)


class ZooKeeperUnavailable(Exception):
    """ZooKeeper did not answer, or the session has ended. The request may have been executed."""


class ZooKeeperSession:
    """One client of ZooKeeper. After its session has expired, the client opens a new one."""

    def __init__(self, url: ZooKeeperUrl, on_state: Callable[[str], None]) -> None:
        """kazoo calls ``on_state`` with each new state, in a thread of kazoo; the function must not block."""
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
        """Start connecting, without waiting."""
        self.client.start_async()

    def await_all(self, requests: Sequence[Any]) -> list[Any]:
        """Return the result of each concurrent request: its value, or ZooKeeper's error if the request was rejected.

        Raises ZooKeeperUnavailable if a reply is missing.
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
        """Return the result of one request for a node. Raises the errors of `await_all` and `result_or_raise`."""
        [result] = self.await_all([request])
        return self.result_or_raise(result, node)

    @staticmethod
    def result_or_raise(result: Any, node: str) -> Any:
        """Return the result of a request or transaction. Raises ZooKeeper's error, if any, naming the node."""
        for item in result if isinstance(result, list) else [result]:
            if isinstance(item, ZooKeeperError) and not isinstance(item, _ROLLED_BACK):
                raise type(item)(node)
        return result

    def keep_connecting(self) -> None:
        """Accept servers that have lost data, if there has been no session for longer than the session time-out.

        By default, kazoo rejects a server whose state is older than the state that the client has seen. After this
        call, a server that only lags behind is accepted, too. That does no harm: each change of an epoch is decided by
        the leader of the ZooKeeper servers, which has the current state.
        """
        if not self._connected and time.monotonic() - self._disconnected_since > self._timeout_s:
            self.client.last_zxid = 0

    def unresolved_hosts(self) -> list[str]:
        """Return a text for each server name that has no address now, with the reason."""
        problems = []
        for host, port in self.client.hosts:
            try:
                socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)
            except socket.gaierror as error:
                problems.append(f"{host} has no address: {error.strerror}")
        return problems

    def raise_epoch(self, node: str, candidate: str, owner: bytes) -> Any:
        """Request the next epoch: the node's next version. ZooKeeper rejects the request if the candidate is gone."""
        transaction = self.client.transaction()
        # Invariant: a process that was paused after it read the candidates, and has lost its session, changes nothing.
        transaction.check(f"{node}/{candidate}", version=0)
        transaction.set_data(node, owner)
        return transaction.commit_async()

    def close(self) -> None:
        """End the session, which removes its nodes immediately."""

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
