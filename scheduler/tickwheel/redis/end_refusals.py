"""The servers that refuse SUNSUBSCRIBE, as to a user of an earlier version. The subscriptions there stay. No I/O."""

import logging
from collections.abc import Iterable

from redis.exceptions import NoPermissionError

_log = logging.getLogger("tickwheel")


class EndRefusals:
    """The refusing servers of a process. The first refusal is logged."""

    def __init__(self) -> None:
        self._servers: set[str] = set()
        self._has_logged = False

    def add_if_refused(self, server: str, error: object) -> bool:
        """Return whether an error of the server refuses SUNSUBSCRIBE. The server then counts as a refusing one."""
        if not isinstance(error, NoPermissionError) or "'sunsubscribe'" not in str(error).lower():
            return False
        self._servers.add(server)
        if not self._has_logged:
            self._has_logged = True
            _log.warning(
                "the server refuses SUNSUBSCRIBE, so the subscriptions to wake-ups of a queue stay after its last"
                " waiting dequeue: create the user again with `tickwheel acl`, or add +sunsubscribe to the user"
            )
        return True

    def forget(self, server: str) -> None:
        """Forget a server whose connection was lost: the next one may have another user."""
        self._servers.discard(server)

    def has_any(self, servers: Iterable[str | None]) -> bool:
        """Return whether one of the servers refuses."""
        return bool(self._servers) and any(server in self._servers for server in servers)
