"""What keeps an election on ZooKeeper from going on, as operators are told it: once, until it is over."""

import logging
from typing import Final

from kazoo.exceptions import NoAuthError
from kazoo.exceptions import ZookeeperError as ZooKeeperError

from tickwheel.election.zookeeper_session import ZooKeeperUnavailable

# Until the next look, after one that failed while there is a connection.
RETRY_S: Final = 0.2
# After one that showed what only an operator can put right.
OPERATOR_S: Final = 2.0

_log = logging.getLogger("tickwheel.event_process")


class ElectionProblemLog:
    """What was told last. Used by one thread."""

    def __init__(self) -> None:
        self._last_text = ""

    def resolved(self) -> None:
        """Should it come again, it is told again."""
        self._last_text = ""

    def nodes_missing(self) -> float:
        """The nodes that this member entered by are gone; seconds until the next look."""
        self._log_once(
            logging.ERROR,
            "ZooKeeper: the nodes of this election are gone: who drives goes on, and nobody follows one that ends."
            " End all event processes, run `tickwheel shards reset-epoch`, and start them again",
        )
        return OPERATOR_S

    def failed(self, error: ZooKeeperUnavailable | ZooKeeperError) -> float:
        """A look failed otherwise; seconds until the next."""
        if isinstance(error, NoAuthError):
            self._log_once(
                logging.ERROR,
                f"ZooKeeper refuses this process the node {error} (NoAuthError): its access list must let it read,"
                " write, create and delete there. Who drives goes on, and this process wins nothing until then",
            )
            return OPERATOR_S
        self._log_once(logging.WARNING, f"ZooKeeper: {error!r}; looking again in {RETRY_S:g} s")
        return RETRY_S

    def unreachable(self, url: str, reasons: list[str]) -> None:
        """No session for a while."""
        self._log_once(logging.WARNING, "; ".join([f"ZooKeeper at {url} cannot be reached; trying on", *reasons]))

    def _log_once(self, level: int, text: str) -> None:
        if text != self._last_text:
            _log.log(level, "%s", text)
        self._last_text = text
