"""Asks the server which commands of a leader the user of the connection may not run."""

from collections.abc import Iterable
from typing import Final

from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.server_checks import permissions_request
from tickwheel.plan import Plan, Reply, Request, Round
from tickwheel.storage.keys import election_key, namespace_key, shard_key, slot_key
from tickwheel.storage.scripts import Call, load

_LEVEL: Final = 2
_NAMES: Final = {"clock", "messages", "bodies", "inbox", "slots", "events"}


def find_denied(context: NamespaceContext, replicas: int = 0) -> Plan[list[str]]:
    """Return the commands of a leader that the user may not run. Checks the metadata shard, for a single server.

    ``replicas`` is the number of replicas for which the relay of the leader waits. Raises Forbidden if the user may not
    use all keys of a leader.
    """
    return denied_commands((yield Round(permission_requests(context, replicas))))


def permission_requests(context: NamespaceContext, replicas: int) -> list[Request]:
    """Return the requests whose replies `denied_commands` takes."""
    script = load("check_leader_permissions")
    keys = {name: shard_key(context.namespace, 0, name) for name in _NAMES}
    keys |= {"slot": slot_key(context.namespace, 0, _LEVEL, 0), "election": election_key(context.namespace)}
    keys["namespace"] = namespace_key(context.namespace)
    adopted = shard_key(context.namespace, 0, "adopted")
    call = Call(script, [keys[name] for name in script.keys], [adopted, replicas])
    return [permissions_request(context.namespace, 0), Request(0, call)]


def denied_commands(replies: Iterable[Reply]) -> list[str]:
    """Return the commands that the replies name."""
    return [name.decode(errors="replace") for reply in replies for name in reply.value]
