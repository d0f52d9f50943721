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
    those of all callers before it. A caller reads ``count`` before it waits for the lock.
    """

    def __init__(self) -> None:
        self.count = 0
        self._error: TickwheelError | None = None

    def raise_since(self, count: int) -> None:
        """Raise the error of the last failed attempt, if an attempt has failed since ``count`` was read."""
        if self._error is not None and self.count != count:
            raise copy(self._error)

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record a TickwheelError of the ``with`` block, which makes the attempt."""
        try:
            yield
        except TickwheelError as error:
            # A copy has no traceback, which would keep the variables of the caller.
            self._error = copy(error)
            self.count += 1
            raise
