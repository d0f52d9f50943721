"""Delete a namespace with all its data. For programs that created the namespace: demo, bench, tests."""

from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Plan, Request, send_request
from tickwheel.storage.keys import shard_prefix


def delete_namespace(context: NamespaceContext) -> Plan[None]:
    """Delete every key of every shard, page by page. The namespace must not be in use."""
    for shard in range(context.shards):
        cursor, pattern = b"0", f"{shard_prefix(context.namespace, shard)}*"
        while True:
            reply = yield from send_request(Request(shard, command=("SCAN", cursor, "MATCH", pattern, "COUNT", 1_000)))
            cursor, keys = reply.value
            if keys:
                yield from send_request(Request(shard, command=("UNLINK", *keys)))
            if cursor == b"0":
                break
