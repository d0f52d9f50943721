"""The event processes that are connected to the servers, as far as the lists of connections show them."""

from collections.abc import Iterable
from dataclasses import dataclass

from tickwheel.errors import Forbidden, TickwheelError
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.shard_status import Follower, list_followers
from tickwheel.plan import Plan


@dataclass(frozen=True, slots=True)
class Followers:
    """The connections that read the inboxes of shards."""

    shards: frozenset[int] | None = frozenset()
    """The shards from whose inbox an event process reads at present. None: this user may not run CLIENT LIST."""
    users: frozenset[str] = frozenset()
    """The users of these connections. Every user with a password can pretend to be an event process."""


def read_followers(context: NamespaceContext, server_shards: Iterable[int]) -> Plan[Followers]:
    """Return the followers that the servers of these shards list. A server that cannot list them counts as without."""
    found: list[Follower] = []
    for shard in server_shards:
        try:
            found += yield from list_followers(context, shard)
        except Forbidden:
            return Followers(None)
        except TickwheelError:
            continue
    return Followers(frozenset(each.shard for each in found), frozenset(each.user for each in found))
