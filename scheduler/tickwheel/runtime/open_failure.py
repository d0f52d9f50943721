"""OpenFailure: the error of a failed attempt to open a client, for all callers that have waited for the attempt."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

from tickwheel.errors import TickwheelError, Unavailable


def still_opening_error() -> Unavailable:
    """Return the error of a call whose timeout is over while another call still opens the client."""
    return Unavailable(
        "the client is not open: another call still tries to reach the server, and the timeout of this call is over",
        may_have_happened=False,
    )


class OpenFailure:
    """The last failed attempt of one caller to open a client for all, while the others waited for a lock.

    Without this, the callers would repeat the attempt one after the other: each would wait for its own timeout, and for
    those of all callers before it. A caller reads ``count`` before it waits for the lock. A caller that may try longer
    than the failed attempt makes an attempt of its own.
    """

    def __init__(self) -> None:
        self.count = 0
        self._tried_s = 0.0
        self._error: TickwheelError | None = None

    def raise_since(self, count: int, timeout_s: float) -> None:
        """Raise the error of the last failed attempt, if an attempt has failed since ``count`` was read, and has tried
        for ``timeout_s`` or longer.
        """
        if self._error is not None and self.count != count and self._tried_s >= timeout_s:
            raise copy(self._error)

    @contextmanager
    def record(self, timeout_s: float) -> Iterator[None]:
        """Record a TickwheelError of the ``with`` block, which makes the attempt and tries for ``timeout_s``."""
        try:
            yield
        except TickwheelError as error:
            # A copy has no traceback, which would keep the variables of the caller.
            self._error = copy(error)
            self._tried_s = timeout_s
            self.count += 1
            raise
