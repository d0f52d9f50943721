"""Watches shards without progress: reads them again for a few seconds, until their drivers have made progress."""

import time
from collections.abc import Callable, Collection
from dataclasses import replace

from tickwheel.doctor.health import held_shards, undriven
from tickwheel.doctor.lease_members import LeaseMembers
from tickwheel.doctor.shard_facts import ShardFacts, read_shard
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Plan

# A driver files an entry of the inbox within two seconds of reading it, unless its host is very busy. So a shard whose
# timers have waited is checked again for twice that time before it counts as undriven.
RECHECK_S, RECHECK_PAUSE_S = 4.0, 0.1


def recheck(
    context: NamespaceContext,
    shard: ShardFacts,
    is_locked: Callable[[int], bool],
    members: LeaseMembers | None = None,
) -> Plan[ShardFacts]:
    """Read the shard again. If a driver has made progress since ``shard`` was read, return the new facts.

    ``driven`` is set in the new facts. Without progress, return ``shard``, only with the present leader.
    """
    now = yield from read_shard(context, shard.number, is_locked, members)
    is_moving = now.has_moved(shard)
    return replace(now, driven=True) if is_moving else replace(shard, locked=now.locked, leader=now.leader)


def watch_undriven(
    shards: dict[int, ShardFacts],
    *,
    embedded: bool,
    read_again: Callable[[ShardFacts], ShardFacts | None],
) -> None:
    """Read undriven shards again until their drivers have made progress, for up to RECHECK_S.

    Updates ``shards``, and removes a shard that is unreadable (``read_again`` returns None).
    """

    def waiting() -> list[ShardFacts]:
        # An embedded namespace without an event process is healthy: its wheel is driven only while programs use it.
        return [shard for shard in undriven(list(shards.values())) if shard.locked or not embedded]

    _watch(shards, waiting, read_again)


def watch_overdue(
    shards: dict[int, ShardFacts],
    numbers: Collection[int],
    followed: frozenset[int] | None,
    *,
    embedded: bool,
    read_again: Callable[[ShardFacts], ShardFacts | None],
) -> list[ShardFacts]:
    """Read the shards ``numbers`` again until their drivers have made progress, for up to RECHECK_S. Update ``shards``.

    Return the shards without progress. Shards whose clock guard holds do not count, nor do embedded ones that no
    process drives.
    """

    def stalled() -> list[ShardFacts]:
        held = held_shards(list(shards.values()), followed)
        waiting = [shard for shard in shards.values() if shard.number in numbers and not shard.driven]
        return [shard for shard in waiting if shard not in held and (shard.locked or not embedded)]

    _watch(shards, stalled, read_again)
    return stalled()


def _watch(
    shards: dict[int, ShardFacts],
    select: Callable[[], list[ShardFacts]],
    read_again: Callable[[ShardFacts], ShardFacts | None],
) -> None:
    """Read the selected shards again until no shard is selected, for up to RECHECK_S."""
    until = time.monotonic() + RECHECK_S
    while time.monotonic() < until and (selected := select()):
        time.sleep(RECHECK_PAUSE_S)
        for shard in selected:
            del shards[shard.number]
            facts = read_again(shard)
            if facts is not None:
                shards[shard.number] = facts
