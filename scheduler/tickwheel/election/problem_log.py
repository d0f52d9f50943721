"""Logs the problems of an election on ZooKeeper for operators, without repeating the same text."""

import logging
from typing import Final

from kazoo.exceptions import NoAuthError, ZookeeperError as ZooKeeperError

from tickwheel.election.zookeeper_session import ZooKeeperUnavailable

# Delay of the next attempt if an attempt failed although the session is connected.
RETRY_S: Final = 0.2
# Delay if only an operator can solve the problem.
OPERATOR_S: Final = 2.0

_log = logging.getLogger("tickwheel.event_process")


class ElectionProblemLog:
    """Logs a problem only if it differs from the last one. Used by one thread."""

    def __init__(self) -> None:
        self._last_text = ""

    def resolved(self) -> None:
        """Record that there is no problem: if the last problem recurs, it is logged again."""
        self._last_text = ""

    def nodes_missing(self) -> float:
        """Log that the nodes of the election are gone. Return the seconds until the next attempt."""
        self._log_once(
            logging.ERROR,
            "ZooKeeper: the nodes of this election are gone. Current leaders keep driving their shards, but no other"
            " process takes over if one ends. Stop all event processes, run `tickwheel shards reset-epoch`, and start"
            " them again",
        )
        return OPERATOR_S

    def failed(self, error: Exception) -> float:
        """Log an attempt that failed for another reason. Return the seconds until the next attempt."""
        if not isinstance(error, ZooKeeperUnavailable | ZooKeeperError):
            self._log_once(
                logging.ERROR,
                f"ZooKeeper: the election failed because of a bug; retrying in {OPERATOR_S:g} s: {error!r:.200}",
                error,
            )
            return OPERATOR_S
        if isinstance(error, NoAuthError):
            self._log_once(
                logging.ERROR,
                f"ZooKeeper denies this process access to the node {error} (NoAuthError): the node's access list must"
                " let the process read, write, create and delete. Current leaders keep driving their shards, and this"
                " process wins no election until it has access",
            )
            return OPERATOR_S
        self._log_once(logging.WARNING, f"ZooKeeper: {error!r}; retrying in {RETRY_S:g} s")
        return RETRY_S

    def unreachable(self, url: str, reasons: list[str]) -> None:
        """Log that there is no session, with the ``reasons`` that are known."""
        self._log_once(logging.WARNING, "; ".join([f"ZooKeeper at {url} cannot be reached; retrying", *reasons]))

    def _log_once(self, level: int, text: str, error: Exception | None = None) -> None:
        if text != self._last_text:
            _log.log(level, "%s", text, exc_info=error)
        self._last_text = text
