"""What keeps an election on ZooKeeper from going on, as operators are told it: once, until it is over."""

import logging
from typing import Final

from kazoo.exceptions import NoAuthError
from kazoo.exceptions import ZookeeperError as ZooKeeperError

from tickwheel.election.zookeeper_session import Away

# Until the next look, after one that failed while there is a connection.
AGAIN_S: Final = 0.2
# After one that showed what only an operator can put right.
OPERATOR_S: Final = 2.0

_log = logging.getLogger("tickwheel.event_process")


class Trouble:
    """What was told last. Used by one thread."""

    def __init__(self) -> None:
        self._told = ""

    def is_over(self) -> None:
        """Should it come again, it is told again."""
        self._told = ""

    def are_gone(self) -> float:
        """The nodes that this member entered by are gone; seconds until the next look."""
        self._tell(
            logging.ERROR,
            "ZooKeeper: the nodes of this election are gone: who drives goes on, and nobody follows one that ends."
            " End all event processes, run `tickwheel shards reset-epoch`, and start them again",
        )
        return OPERATOR_S

    def failed(self, error: Away | ZooKeeperError) -> float:
        """A look failed otherwise; seconds until the next."""
        if isinstance(error, NoAuthError):
            self._tell(
                logging.ERROR,
                f"ZooKeeper refuses this process the node {error} (NoAuthError): its access list must let it read,"
                " write, create and delete there. Who drives goes on, and this process wins nothing until then",
            )
            return OPERATOR_S
        self._tell(logging.WARNING, f"ZooKeeper: {error!r}; looking again in {AGAIN_S:g} s")
        return AGAIN_S

    def unreachable(self, where: str, reasons: list[str]) -> None:
        """No session for a while."""
        self._tell(logging.WARNING, "; ".join([f"ZooKeeper at {where} cannot be reached; trying on", *reasons]))

    def _tell(self, level: int, text: str) -> None:
        if text != self._told:
            _log.log(level, "%s", text)
        self._told = text
