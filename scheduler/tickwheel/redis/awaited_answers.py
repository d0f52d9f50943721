"""The answers to subscriptions, and to their ends, that the servers owe. No I/O.

The answers of a server arrive in the order of the commands, with the wake-ups in between. So the listener sends a part
of the commands, and the next part when all of this part is answered: a new subscription, or a wake-up, never waits for
the answers to thousands of other commands.
"""

import time
from typing import Final

# Seconds without an answer after which the listener no longer waits for a server.
_LONGEST_WAIT_S: Final = 0.25


class AwaitedAnswers:
    """The number of answers that each server owes."""

    def __init__(self) -> None:
        self._owed: dict[str, int] = {}
        # When each server last answered, or the first of the commands was sent.
        self._last_at: dict[str, float] = {}

    def on_sent(self, server: str, count: int) -> None:
        """Count commands that were sent to a server."""
        if not self._owed.get(server):
            self._last_at[server] = time.monotonic()
        self._owed[server] = self._owed.get(server, 0) + count

    def on_answer(self, server: str) -> None:
        """Count an answer. The server may also report a lost subscription, without a command."""
        if self._owed.get(server, 0) > 1:
            self._owed[server] -= 1
            self._last_at[server] = time.monotonic()
        else:
            self.drop(server)

    def drop(self, server: str) -> None:
        """Expect no more answers from a server: its connection was lost, or it has given all."""
        self._owed.pop(server, None)
        self._last_at.pop(server, None)

    def seconds_left(self) -> float:
        """Return the seconds until the next part may be sent, unless an answer arrives earlier."""
        return max(max(self._last_at.values(), default=0.0) + _LONGEST_WAIT_S - time.monotonic(), 0.0)
