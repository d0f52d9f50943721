"""Rejects calls on a closed client, and on a client inherited through `fork()`."""

import os

from tickwheel.errors import TickwheelError, Unavailable


class ProcessGuard:
    """Allows the calls of a client until `close`, and only in the process that created the guard."""

    def __init__(self, display_url: str) -> None:
        self._display_url = display_url
        self._pid = os.getpid()
        self._closed = False

    @property
    def owned_by_this_process(self) -> bool:
        """Whether this process created the guard; False in a process forked from that one."""
        return os.getpid() == self._pid

    def close(self) -> None:
        self._closed = True

    def check(self, sent: bool = False) -> None:
        """Raise TickwheelError if the client is closed, or was inherited through a fork.

        If the client is closed and the call was already ``sent``, raise Unavailable: the call may have had an effect.
        """
        if self._closed and sent:
            raise Unavailable(
                f"the client of {self._display_url} was closed before the call had its answer, so it is unknown"
                " whether the call took effect; before you repeat it with another client, see 'Repeat a call' in the"
                " guide",
                may_have_happened=True,
            )
        if self._closed:
            raise TickwheelError(f"the client of {self._display_url} is closed: open a new one")
        if not self.owned_by_this_process:
            # Both processes would use the same connections and sessions, and receive each other's answers.
            raise TickwheelError(
                f"the client of {self._display_url} was opened by process {self._pid}, from which this process"
                f" {os.getpid()} was forked: open a separate client in this process"
            )
