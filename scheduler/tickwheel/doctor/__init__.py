"""The doctor: checks whether servers and shards are healthy, and audits the stored data of a namespace.

The audit compares every index, counter, timer and event with the records of the messages. It reads page by page with
bounded memory, and changes nothing. It reports findings; the CLI prints them, and the operator decides what to do.

server_health     checks of a server: version, role, memory, durability, clock
health            checks of the shards and queues: driver, clock guard, inbox, outbox, blocked queues, sinks
shard_facts       facts about a shard, all of one moment
lease_members     the processes that take part in an election by lease
lease_health      check of an election by lease: leaders, standbys, and shards that nobody drives
followers         the event processes that are connected to the servers
shard_watch       shards without progress, which are read again for a few seconds
slots_in_use      how long the slots of the wheel have waited for a driver
overdue           messages whose time has passed, although the wheel has not moved
keyspace          the name and the type of each key
timers            the timer of every message that waits for a time: in the inbox or in the right slot
messages          each record, and the index entries, counters and bodies that it implies
indexes           the reverse direction: the record from which each index entry comes
shard_values      values that no message implies: clock, fence, lateness
history           a replay of the events, compared with the states of the records
expected_entries  the index entries that a record implies
finding           the result of a health check
clock_reading     the time of a server, compared with the time of this host
shard_reader      one shard, read in pages, and the findings
small_shards      shards that fit into one page, several of them checked in the same round trips
"""

from tickwheel.doctor.history import check_history
from tickwheel.doctor.indexes import check_indexes
from tickwheel.doctor.keyspace import check_keys, may_scan
from tickwheel.doctor.messages import check_messages
from tickwheel.doctor.overdue import OverdueMessages
from tickwheel.doctor.shard_reader import Findings, ShardReader
from tickwheel.doctor.shard_values import check_values
from tickwheel.doctor.small_shards import SHARDS_TOGETHER, find_small, run_together
from tickwheel.doctor.timers import check_wheel
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.removal.queue_numbers import read_rows
from tickwheel.plan import Plan
from tickwheel.runtime.chunks import iter_chunks

__all__ = ["LIVE_PASSES", "audit"]

# A live system changes while the audit reads it. Three passes rule out findings that such a change causes in one pass.
LIVE_PASSES = 3


def audit(core: NamespaceContext, *, passes: int = 1, overdue: OverdueMessages | None = None) -> Plan[list[str]]:
    """Return the findings of an audit of the namespace, one line each, sorted. The list is empty if the data is intact.

    If no client or event process uses the namespace, one pass is exact. Otherwise set ``passes`` to LIVE_PASSES: a
    problem is reported only if every pass finds it, and counters that change during a pass are not checked. The memory
    is bounded, and the time grows with the size of the namespace. ``overdue`` receives the messages that the first pass
    finds overdue.
    """
    findings = yield from _check_namespace(core, {} if overdue is None else overdue)
    for _ in range(passes - 1):
        if not findings:
            break
        again = yield from _check_namespace(core, {})
        findings = {location: text for location, text in again.items() if location in findings}
    return sorted(findings.values())


def _check_namespace(context: NamespaceContext, overdue: OverdueMessages) -> Plan[Findings]:
    findings: Findings = {}
    metadata_shard = ShardReader(context, 0, {}, findings)
    rows = yield from metadata_shard.run_check("queues", read_rows(context))
    if rows is None:
        return findings
    # The text begins with the name of the row, so every pass finds the same location.
    findings |= {text: f"shard 0, queues: {text}" for text in rows.unreadable}
    queues = {config.number: (name, config) for name, config in rows.configs.items()}
    scans = yield from may_scan(0)
    usable = yield from metadata_shard.run_check("keys", check_keys(context, queues, findings, scans=scans))
    if usable:
        shards = [ShardReader(context, number, queues, findings, scans, overdue) for number in range(context.shards)]
        small = yield from find_small(shards)
        for group in iter_chunks(small, SHARDS_TOGETHER):
            yield from run_together([_check_shard(shard) for shard in group])
        for shard in shards:
            if shard not in small:
                yield from _check_shard(shard)
    return findings


def _check_shard(shard: ShardReader) -> Plan[None]:
    timers = yield from shard.run_check("wheel", check_wheel(shard))
    # The messages are compared with the timers. If the timers are unreadable, this check is left out.
    if timers is not None:
        yield from shard.run_check("messages", check_messages(shard, timers))
    yield from shard.run_check("indexes", check_indexes(shard))
    yield from shard.run_check("values", check_values(shard))
    yield from shard.run_check("events", check_history(shard))
    shard.decoded.clear()
