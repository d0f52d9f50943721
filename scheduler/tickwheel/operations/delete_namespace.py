"""Delete a namespace with all that is in it. For those who made it themselves: demo, bench, tests."""

from tickwheel.operations.context import Core
from tickwheel.plan import Plan, Request, one
from tickwheel.storage.keys import shard_prefix


def delete_namespace(core: Core) -> Plan[None]:
    """Every key of every shard, page by page. Nobody may be at work in it."""
    for shard in range(core.shards):
        cursor, pattern = b"0", f"{shard_prefix(core.namespace, shard)}*"
        while True:
            reply = yield from one(Request(shard, command=("SCAN", cursor, "MATCH", pattern, "COUNT", 1_000)))
            cursor, keys = reply.value
            if keys:
                yield from one(Request(shard, command=("UNLINK", *keys)))
            if cursor == b"0":
                break
