"""The values that no message implies: the numbers of the clock, its fence, and the histograms of lateness."""

import re

from tickwheel.doctor.shard_reader import Shard
from tickwheel.operations.inspect import BUCKET
from tickwheel.plan import Plan, pairwise
from tickwheel.storage.fence import FENCE_BYTES

_WHOLE = re.compile(rb"-?[0-9]{1,18}")
_COUNT = re.compile(rb"[0-9]{1,18}")


def check_values(shard: Shard) -> Plan[None]:
    """Each is of the shape that scripts write."""
    clock, *histograms = yield from shard.ask(
        [
            ("HGETALL", shard.key("clock")),
            *(("HGETALL", shard.queue_key(queue, "lateness")) for queue, _ in shard.queues.values()),
        ]
    )
    for field, value in pairwise(clock):
        if field == b"fence" and len(value) != FENCE_BYTES:
            shard.find("clock, fence", f"it is {value!r}, not {FENCE_BYTES} bytes")
        if field in (b"seq", b"high", b"accepted", b"outbox", b"dropped") and not _WHOLE.fullmatch(value):
            shard.find(f"clock, {field.decode()}", f"it is {value!r}, not a whole number")
    for (queue, _), histogram in zip(shard.queues.values(), histograms, strict=True):
        for field, value in pairwise(histogram):
            if not BUCKET.fullmatch(field):
                shard.find(f"queue {queue}, lateness {field!r}", "not a field that Tickwheel makes")
            elif not _COUNT.fullmatch(value):
                shard.find(f"queue {queue}, lateness {field!r}", f"it is {value!r}, not a whole number")
