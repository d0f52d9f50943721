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
from tickwheel.doctor.shard_reader import Findings, ShardReader
from tickwheel.doctor.shard_values import check_values
from tickwheel.doctor.wheel import check_wheel
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.queues import list_queues
from tickwheel.plan import Plan

__all__ = ["LIVE_PASSES", "audit"]

# A system at work changes under the reader's eyes; what one look misjudges, three do not.
LIVE_PASSES = 3


def audit(core: NamespaceContext, *, passes: int = 1) -> Plan[list[str]]:
    """What is wrong in the namespace, a line for each finding; empty where all is well.

    One pass is exact for a system at rest. While it is at work give LIVE_PASSES: only what every pass finds is a
    finding, and counters that moved during a pass are not judged. Memory is bounded; the time is that of reading all.
    """
    findings = yield from _check_namespace(core)
    for _ in range(passes - 1):
        if not findings:
            break
        again = yield from _check_namespace(core)
        findings = {location: text for location, text in again.items() if location in findings}
    return sorted(findings.values())


def _check_namespace(context: NamespaceContext) -> Plan[Findings]:
    findings: Findings = {}
    metadata_shard = ShardReader(context, 0, {}, findings)
    registry = yield from metadata_shard.run_check("queues", list_queues(context))
    if registry is None:
        return findings
    queues = {config.number: (name, config) for name, config in registry.items()}
    usable = yield from metadata_shard.run_check("keys", check_keys(context, queues, findings))
    for number in range(context.shards) if usable else ():
        shard = ShardReader(context, number, queues, findings)
        timers = yield from shard.run_check("wheel", check_wheel(shard))
        # Which timers there are decides what a message lacks.
        if timers is not None:
            yield from shard.run_check("messages", check_messages(shard, timers))
        yield from shard.run_check("indexes", check_indexes(shard))
        yield from shard.run_check("values", check_values(shard))
        yield from shard.run_check("events", check_history(shard))
    return findings
