"""Checks the values that cannot be computed from the messages.

These are the numbers and the fence in the hash `clock`, and the histograms of lateness.
"""

import re

from tickwheel.doctor.shard_reader import ShardReader
from tickwheel.operations.inspect import BUCKET
from tickwheel.plan import Plan, pairs_from_flat
from tickwheel.storage.fence import FENCE_BYTES, is_fence

_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_COUNT = re.compile(rb"[0-9]{1,18}")


def check_values(shard: ShardReader) -> Plan[None]:
    """Check that each value has the format that scripts write."""
    clock, *histograms = yield from shard.execute(
        [
            ("HGETALL", shard.key("clock")),
            *(("HGETALL", shard.queue_key(queue, "lateness")) for queue, _ in shard.queues.values()),
        ]
    )
    for field, value in pairs_from_flat(clock):
        if field == b"fence" and not is_fence(value):
            shard.add_finding("clock, fence", f"it is {value!r}, not {FENCE_BYTES} bytes with two numbers")
        if field in (b"seq", b"high", b"created", b"accepted", b"outbox", b"dropped") and not _INTEGER.fullmatch(value):
            shard.add_finding(f"clock, {field.decode()}", f"it is {value!r}, not a whole number")
    for (queue, _), histogram in zip(shard.queues.values(), histograms, strict=True):
        for field, value in pairs_from_flat(histogram):
            if not BUCKET.fullmatch(field):
                shard.add_finding(f"queue {queue}, lateness {field!r}", "Tickwheel writes no field of this name")
            elif not _COUNT.fullmatch(value):
                shard.add_finding(f"queue {queue}, lateness {field!r}", f"it is {value!r}, not a whole number")
