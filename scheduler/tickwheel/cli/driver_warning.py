"""The warning of commands after which a timer must fire: no event process drives the namespace."""

from contextlib import suppress

from tickwheel import Tickwheel
from tickwheel.cli.output import print_status
from tickwheel.client.admin import Admin
from tickwheel.client.driver_watch import check_once
from tickwheel.errors import TickwheelError


def warn_if_undriven(tickwheel: Tickwheel) -> None:
    """Print a warning on stderr if no event process drives the namespace.

    The embedded server of a data directory is driven while programs use it, so it is not checked. A client of the
    service cannot check who drives: the log of the service has a warning if nobody does.
    """
    admin = Admin(tickwheel)
    if admin.settings.url is None or admin.settings.is_service:
        return
    # The command has done its work, so it does not fail because a shard cannot be read.
    with suppress(TickwheelError):
        if text := admin.run(check_once(admin.context)):
            print_status(f"warning: {text}")
