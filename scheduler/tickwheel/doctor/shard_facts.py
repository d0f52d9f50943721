"""Facts about one shard, for the health checks: all are read in one round, so they are of one moment."""

from collections.abc import Callable
from dataclasses import dataclass

from tickwheel.doctor.clock_reading import ClockReading
from tickwheel.doctor.lease_members import LeaseMembers
from tickwheel.doctor.slots_in_use import SLOT_MS, SlotsInUse, read_slots, slots_command
from tickwheel.election.lease_member import KIND
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Plan, Request, Round
from tickwheel.runtime.time import wall_ms
from tickwheel.storage.fence import FENCE_BYTES, epoch_of, is_fence
from tickwheel.storage.keys import shard_key
from tickwheel.storage.stream_id import age_ms
from tickwheel.storage.timer import CorruptTimers, parse_entry

# A driver files a new timer at most two seconds after reading it. If an entry of the inbox or a slot (`SlotsInUse`)
# has waited for longer than the limits, either no driver runs, or a driver has just started and has found old work. So
# `recheck` checks for progress.
_INBOX_MS = 5_000
# Times have at most this number of digits.
_DIGITS = 16


@dataclass(slots=True)
class ShardFacts:
    """Facts about one shard. All times are those of its server, and are compared only with ``clock``.

    ``clock`` is the time of the server when it read the other facts. ``locked``: a process of this host holds the
    election lock of the shard. ``leader`` is the name of the process that leads the shard in an election by lease. It
    is empty if no process that takes part drives the shard, and in the other kinds of election. ``driven``: a driver
    made progress between two reads. ``held_ms``: the last driver's clock guard held, because the server's clock was
    ahead by this time; None: the guard did not hold. ``oldest_new`` is the id of the first entry of the inbox, or
    empty, and ``oldest_due_ms`` the time of the entry's earliest timer.
    """

    number: int
    fence: bytes
    election: str
    high_ms: int
    inbox: int
    oldest_new: bytes
    slots: SlotsInUse
    outbox: int
    locked: bool
    clock: ClockReading
    oldest_due_ms: int | None = None
    driven: bool = False
    held_ms: int | None = None
    outbox_bytes: int = 0
    dropped: int = 0
    leader: str = ""

    @property
    def is_led(self) -> bool:
        """Whether a process is known to lead the shard."""
        return self.locked or self.leader != ""

    @property
    def epoch(self) -> int:
        return epoch_of(self.fence) if self.fence else 0

    @property
    def waiting_ms(self) -> int | None:
        """The longest time, in ms, for which work has waited or been due that a driver would have done by now.

        None: there is no such work. 0: there may be such work, but this time is unknown.
        """
        now_ms, waits = int(self.clock.server_ms), []
        if self.oldest_new:
            age = age_ms(self.oldest_new, now_ms)
            late = 0 if self.oldest_due_ms is None else now_ms - self.oldest_due_ms
            longest = max(age or 0, late, 0)
            if age is None or longest > _INBOX_MS:
                waits.append(longest)
        if (slot_wait := self.slots.waiting_ms(now_ms)) > SLOT_MS:
            waits.append(slot_wait)
        return max(waits, default=None)

    @property
    def mark_ahead_ms(self) -> int:
        """By how many ms the wheel is ahead of the server's clock. This is positive only if the clock went back."""
        return self.high_ms - int(self.clock.server_ms)

    def has_moved(self, before: "ShardFacts") -> bool:
        """Return whether a driver has claimed the shard, fired timers, changed a slot or filed timers since ``before``.

        Only drivers make these changes.
        """
        if (before.fence, before.high_ms) != (self.fence, self.high_ms) or self.slots.has_moved(before.slots):
            return True
        # If the inbox was empty, a new first entry comes from an enqueue and not from a driver.
        return before.oldest_new not in (b"", self.oldest_new)


def read_shard(
    context: NamespaceContext, number: int, is_locked: Callable[[int], bool], members: LeaseMembers | None = None
) -> Plan[ShardFacts]:
    """Return the facts about one shard. ``members`` are those of an election by lease.

    Raises ValueError if a value does not have the format that scripts write.
    """

    def key(name: str) -> str:
        return shard_key(context.namespace, number, name)

    fields = ("fence", "election", "high", "holder", "outbox", "dropped", "held")
    sent_ms = wall_ms()
    replies = yield Round(
        [
            Request(number, command=("HMGET", key("clock"), *fields)),
            Request(number, command=("XLEN", key("inbox"))),
            Request(number, command=("XRANGE", key("inbox"), "-", "+", "COUNT", 1)),
            Request(number, command=slots_command(context, number)),
            Request(number, command=("XLEN", key("events"))),
            # The last command, because then no time that the others return is ahead of a correct clock.
            Request(number, command=("TIME",)),
        ]
    )
    (fence, kind, high, holder, *counted), inbox, oldest, slots, outbox, time = (reply.value for reply in replies)
    clock = ClockReading.of_reply(time, sent_ms)
    if fence is not None and not is_fence(fence):
        raise ValueError(f"the field 'fence' of the key 'clock' is {fence!r}, not {FENCE_BYTES} bytes with two numbers")
    if high is not None and not high.isdigit():
        raise ValueError(f"the field 'high' of the key 'clock' is {high!r}, not a whole number")
    election = kind.decode() if kind else ""
    is_by_lease = election == KIND
    leader = members.leader_of(number, (holder or b"").decode(errors="replace")) if members and is_by_lease else ""
    return ShardFacts(
        number=number,
        fence=fence or b"",
        election=election,
        high_ms=int(high or 0),
        inbox=inbox,
        oldest_new=oldest[0][0] if oldest else b"",
        oldest_due_ms=_earliest_ms(oldest[0][1][1]) if oldest else None,
        slots=(yield from read_slots(context, number, slots, int(clock.server_ms))),
        outbox=outbox,
        outbox_bytes=int(counted[0] or 0),
        dropped=int(counted[1] or 0),
        held_ms=_held_ms(counted[2] or b"", fence),
        # A lock file means nothing in an election by lease.
        locked=not is_by_lease and is_locked(number),
        leader=leader,
        clock=clock,
    )


def _held_ms(stored: bytes, fence: bytes | None) -> int | None:
    """Return how far the server's clock was ahead when the clock guard began to hold.

    None: it does not hold, or another process has claimed the shard since then.
    """
    ahead, held_by = stored[:-FENCE_BYTES], stored[-FENCE_BYTES:]
    return int(ahead) if held_by == fence and ahead.isdigit() and len(ahead) <= _DIGITS else None


def _earliest_ms(packed: bytes) -> int | None:
    """Return the time of the earliest timer of an entry of the inbox; None if no event process accepts the entry."""
    try:
        return min((time_ms for time_ms, *_ in parse_entry(packed)), default=None)
    except CorruptTimers:
        return None
