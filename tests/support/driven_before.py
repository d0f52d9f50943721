"""A namespace whose last driver has released its shards, so a program with `--drive auto` drives them at once.

Such a program leaves a namespace that nobody has driven to event processes for 15 s (`UNCLAIMED_MS`). Tests that are
not about this time need not wait for it.
"""

from typing import Any

from tests.fault.shard_owners import LeaseOwners
from tests.support.event_process_thread import run_event_process
from tests.support.promotion import SETTLED_S
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.election.lease_options import LeaseOptions


def drive_and_release(tickwheel: Tickwheel, url: str, server: Any) -> None:
    """Let an event process claim all shards of the namespace by lease, and release them."""
    context = tickwheel._context
    leaders = LeaseOwners(tickwheel, server)
    with run_event_process(url, context.namespace, LeaseOptions()):
        eventually(lambda: "" not in leaders.now(), "the event process drives", SETTLED_S)
    assert leaders.now() == [""] * context.shards
