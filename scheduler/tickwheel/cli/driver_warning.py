"""The warning of commands that no event process drives the namespace, and that messages are overdue."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from tickwheel import MessageView, Tickwheel
from tickwheel.cli.output import print_status
from tickwheel.client.admin import Admin
from tickwheel.client.driver_watch import QUIET_MS
from tickwheel.errors import TickwheelError

# Of messages that wait for a driver.
_OVERDUE: Final = timedelta(milliseconds=QUIET_MS)
_WAITING: Final = frozenset({"invisible", "running"})


def warn_if_undriven(tickwheel: Tickwheel, *, only_once: bool = False) -> bool:
    """Print a warning on stderr if no event process drives the namespace. Return whether one was printed.

    ``only_once`` is for commands that only read: see `Backend.check_drivers`.

    The embedded server of a data directory is driven while programs use it, so it is not checked.
    """
    admin = Admin(tickwheel)
    if admin.settings.url is None:
        return False
    # The command has done its work, so it does not fail because a shard cannot be read.
    with suppress(TickwheelError):
        if text := admin.run(admin.backend.check_drivers(only_once=only_once)):
            print_status(f"warning: {text}")
            return True
    return False


class OverdueCount:
    """The number of listed messages that an event process should have moved some time ago, by this host's clock."""

    def __init__(self) -> None:
        self.number = 0

    def observe(self, views: Iterable[MessageView]) -> Iterator[MessageView]:
        """Yield the messages, and count those that are overdue."""
        for view in views:
            if view.state in _WAITING and view.until is not None and view.until + _OVERDUE < datetime.now(UTC):
                self.number += 1
            yield view

    def warn(self, tickwheel: Tickwheel) -> None:
        """Print a warning on stderr if nobody drives, or else if messages are overdue.

        In a data directory, messages are overdue whenever no program has used it for a while.
        """
        if warn_if_undriven(tickwheel, only_once=True) or Admin(tickwheel).settings.url is None:
            return
        if self.number:
            print_status(
                f"warning: overdue messages in this list: {self.number:,}. They wait for more than"
                f" {_OVERDUE.total_seconds():g} s for an event process. To find the reason, run `tickwheel doctor`"
            )
