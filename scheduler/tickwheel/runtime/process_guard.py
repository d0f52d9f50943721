"""Whether a client may send: not once it is closed, and not in a process that was forked from its own."""

import os

from tickwheel.errors import TickwheelError, Unavailable


class ProcessGuard:
    """Open until `close`, in the process that made it."""

    def __init__(self, display_url: str) -> None:
        self._display_url = display_url
        self._pid = os.getpid()
        self._closed = False

    @property
    def owned_by_this_process(self) -> bool:
        """Whether this process made it, and was not forked from the one that did."""
        return os.getpid() == self._pid

    def close(self) -> None:
        self._closed = True

    def check(self, sent: bool = False) -> None:
        """Raises TickwheelError where nothing may be sent; Unavailable where the call had been ``sent`` before."""
        if self._closed and sent:
            raise Unavailable(
                f"the client of {self._display_url} was closed before the call had its answer: it may have been"
                " done, and"
                " can be sent again by another client",
                may_have_happened=True,
            )
        if self._closed:
            raise TickwheelError(f"the client of {self._display_url} is closed: open another")
        if not self.owned_by_this_process:
            # Its connections and sessions are the parent's: two processes would get each other's answers.
            raise TickwheelError(
                f"the client of {self._display_url} was opened by process {self._pid}, and this one, {os.getpid()}, was"
                " forked from it: open a client of its own here"
            )
