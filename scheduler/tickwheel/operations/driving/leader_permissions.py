"""Asks the server which commands of a leader the user of the connection may not run."""

from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.server_checks import find_denied_commands
from tickwheel.plan import Plan, Request, send_request
from tickwheel.storage.keys import election_key, shard_key, slot_key
from tickwheel.storage.scripts import Call, load

_LEVEL = 2
_NAMES = {"clock", "messages", "bodies", "inbox", "slots", "events"}


def find_denied(context: NamespaceContext) -> Plan[list[str]]:
    """Return the commands of a leader that the user may not run. Checks the metadata shard, for a single server.

    Raises Forbidden if the user may not use all keys of a leader.
    """
    commands = yield from find_denied_commands(context.namespace, 0)
    script = load("check_leader_permissions")
    keys = {name: shard_key(context.namespace, 0, name) for name in _NAMES}
    keys |= {"slot": slot_key(context.namespace, 0, _LEVEL, 0), "election": election_key(context.namespace)}
    adopted = shard_key(context.namespace, 0, "adopted")
    reply = yield from send_request(Request(0, Call(script, [keys[name] for name in script.keys], [adopted])))
    return commands + [text.decode(errors="replace") for text in reply.value]
