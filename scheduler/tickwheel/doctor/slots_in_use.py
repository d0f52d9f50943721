"""The slots of a shard's wheel, and how long they have waited for a driver.

A driver begins to cascade a slot a lead time before the slot's start, and removes it from `slots` within seconds, or
while it is large, shortens it many times a second. A driver reads a slot of the lowest level without a trace in Redis,
and removes it soon after its end.

The first slot of a shard starts no later than any message of the wheel is due. So if no driver runs, a slot has waited
for longer than SLOT_MS at most 14 seconds after a message is due.
"""

from dataclasses import dataclass, field

from tickwheel.doctor.timers import slot_of
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Command, Plan, Request, Round
from tickwheel.storage.keys import shard_key, slot_key
from tickwheel.storage.wheel_levels import LOWEST, length, serve_time, start

# How long a slot may wait. A driver wakes up to a second late, because its estimate of the server's time may be behind
# by the limit of the clock guard, and other slots may be first.
SLOT_MS = 10_000
# Maximum number of slots that are read. The slots of a shard that is driven are fewer.
_SLOTS = 1_000

Slot = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SlotsInUse:
    """The slots in use, as (level, number), in the order of their starts.

    ``chunks`` has the number of chunks of each slot that a driver cascades now.
    """

    slots: tuple[Slot, ...] = ()
    chunks: dict[Slot, int] = field(default_factory=dict)

    def waiting_ms(self, now_ms: int) -> int:
        """Return for how long, in ms, the slot that has waited longest has waited for a driver. 0 if no slot waits."""
        return max([0, *(now_ms - waits_from(*slot) for slot in self.slots)])

    def has_moved(self, before: "SlotsInUse") -> bool:
        """Return whether a driver has added, removed, shortened or extended a slot since ``before``."""
        return self.slots != before.slots or any(
            self.chunks.get(slot, chunks) != chunks for slot, chunks in before.chunks.items()
        )


def waits_from(level: int, number: int) -> int:
    """Return the time from which a slot in use waits for a driver."""
    return serve_time(level, number) if level > LOWEST else start(level, number) + length(level)


def slots_command(context: NamespaceContext, shard: int) -> Command:
    """Return the command whose reply `read_slots` takes."""
    return "ZRANGE", shard_key(context.namespace, shard, "slots"), 0, _SLOTS - 1


def read_slots(context: NamespaceContext, shard: int, members: list[bytes], now_ms: int) -> Plan[SlotsInUse]:
    """Return the slots of the reply to `slots_command`. Raises ValueError if event processes write no such member."""
    slots = tuple(slot_of(member) for member in members)
    cascaded = [slot for slot in slots if slot[0] > LOWEST and waits_from(*slot) <= now_ms]
    if not cascaded:
        return SlotsInUse(slots)
    lists = [slot_key(context.namespace, shard, *slot) for slot in cascaded]
    replies = yield Round([Request(shard, command=("LLEN", key)) for key in lists])
    return SlotsInUse(slots, {slot: reply.value for slot, reply in zip(cascaded, replies, strict=True)})
