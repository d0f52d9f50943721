"""Is everything in a namespace as its own records say? Reads page by page and changes nothing.

reading     what the checks share: pages of keys, and the findings
keyspace    no key outside the declared shapes, each of its type
messages    each record, and every index entry, counter and body that it implies
indexes     the way back: each index entry, and the record that it comes from
wheel       every message that waits for a time has its timer where the event process will find it
values      the numbers that no message implies: clock, fence, lateness
history     the events replay to the states of the records
"""

from tickwheel.doctor.history import check_history
from tickwheel.doctor.indexes import check_indexes
from tickwheel.doctor.keyspace import check_keys
from tickwheel.doctor.messages import check_messages
from tickwheel.doctor.shard_reader import Findings, Shard
from tickwheel.doctor.shard_values import check_values
from tickwheel.doctor.wheel import check_wheel
from tickwheel.operations.context import Core
from tickwheel.operations.queues import listed
from tickwheel.plan import Plan

__all__ = ["LIVE_PASSES", "audit"]

# A system at work changes under the reader's eyes; what one look misjudges, three do not.
LIVE_PASSES = 3


def audit(core: Core, *, passes: int = 1) -> Plan[list[str]]:
    """What is wrong in the namespace, a line for each finding; empty where all is well.

    One pass is exact for a system at rest. While it is at work give LIVE_PASSES: only what every pass finds is a
    finding, and counters that moved during a pass are not judged. Memory is bounded; the time is that of reading all.
    """
    found = yield from _look(core)
    for _ in range(passes - 1):
        if not found:
            break
        again = yield from _look(core)
        found = {where: text for where, text in again.items() if where in found}
    return sorted(found.values())


def _look(core: Core) -> Plan[Findings]:
    findings: Findings = {}
    home = Shard(core, 0, {}, findings)
    registry = yield from home.readable("queues", listed(core))
    if registry is None:
        return findings
    queues = {config.number: (name, config) for name, config in registry.items()}
    usable = yield from home.readable("keys", check_keys(core, queues, findings))
    for number in range(core.shards) if usable else ():
        shard = Shard(core, number, queues, findings)
        timers = yield from shard.readable("wheel", check_wheel(shard))
        # Which timers there are decides what a message lacks.
        if timers is not None:
            yield from shard.readable("messages", check_messages(shard, timers))
        yield from shard.readable("indexes", check_indexes(shard))
        yield from shard.readable("values", check_values(shard))
        yield from shard.readable("events", check_history(shard))
    return findings
