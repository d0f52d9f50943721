"""Health checks of shards and queues. The functions read facts about the shards of a namespace, and then judge them."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tickwheel.doctor.clock_reading import ClockReading
from tickwheel.doctor.finding import Finding
from tickwheel.doctor.timers import slot_of
from tickwheel.errors import InvalidArgument
from tickwheel.model.sink_url import validate_sink_url
from tickwheel.operations.context import RELAYED, NamespaceContext, outbox_of
from tickwheel.operations.removal.queue_numbers import QueueRows
from tickwheel.plan import Plan, Request, Round
from tickwheel.runtime.time import wall_ms
from tickwheel.storage.fence import FENCE_BYTES, epoch_of, is_fence
from tickwheel.storage.keys import shard_key
from tickwheel.storage.stream_id import age_ms
from tickwheel.storage.timer import CorruptTimers, parse_entry
from tickwheel.storage.wheel_levels import length, start

# A driver files an entry of the inbox within two seconds of reading it, unless its host is very busy. So a shard whose
# timers have waited is checked again for twice that time before it counts as undriven.
RECHECK_S, RECHECK_PAUSE_S = 4.0, 0.1
# A driver files a new timer at most two seconds after reading it, and removes a slot soon after the slot's end. If
# there is work that is older than these limits, either no driver runs, or a driver has just started and has found old
# work. So `recheck` checks for progress.
_INBOX_MS = 5_000
_SLOT_MS = 10_000
# Maximum number of unreadable queues that get a finding of their own.
_UNREADABLE_QUEUES = 20


@dataclass(slots=True)
class ShardFacts:
    """Facts about one shard. All times are those of its server, and are compared only with ``clock``.

    ``clock`` is the time of the server when it read the other facts. ``locked``: a process of this host holds the
    election lock of the shard. ``driven``: a driver made progress between two reads. ``held_ms``: the last driver's
    clock guard held, because the server's clock was ahead by this time; None: the guard did not hold. ``oldest_new`` is
    the id of the first entry of the inbox, or empty, and ``oldest_due_ms`` the time of the entry's earliest timer.
    """

    number: int
    fence: bytes
    election: str
    high_ms: int
    inbox: int
    oldest_new: bytes
    oldest_slot_end_ms: int | None
    outbox: int
    locked: bool
    clock: ClockReading
    oldest_due_ms: int | None = None
    driven: bool = False
    held_ms: int | None = None
    outbox_bytes: int = 0
    dropped: int = 0

    @property
    def epoch(self) -> int:
        return epoch_of(self.fence) if self.fence else 0

    @property
    def waiting_ms(self) -> int | None:
        """The longest time, in ms, for which timers have waited or been due that a driver would have handled by now.

        None: there are no such timers. 0: there may be such timers, but this time is unknown.
        """
        now_ms, waits = int(self.clock.server_ms), []
        if self.oldest_new:
            age = age_ms(self.oldest_new, now_ms)
            late = 0 if self.oldest_due_ms is None else now_ms - self.oldest_due_ms
            longest = max(age or 0, late, 0)
            if age is None or longest > _INBOX_MS:
                waits.append(longest)
        if self.oldest_slot_end_ms is not None and now_ms - self.oldest_slot_end_ms > _SLOT_MS:
            waits.append(now_ms - self.oldest_slot_end_ms)
        return max(waits, default=None)

    @property
    def mark_ahead_ms(self) -> int:
        """By how many ms the wheel is ahead of the server's clock. This is positive only if the clock went back."""
        return self.high_ms - int(self.clock.server_ms)

    def has_moved(self, before: "ShardFacts") -> bool:
        """Return whether a driver has claimed the shard, fired timers, removed a slot or filed timers since ``before``.

        Only drivers make these changes.
        """
        activity = [(facts.fence, facts.high_ms, facts.oldest_slot_end_ms) for facts in (before, self)]
        # If the inbox was empty, a new first entry comes from an enqueue and not from a driver.
        return activity[0] != activity[1] or (before.oldest_new != b"" and before.oldest_new != self.oldest_new)


def read_shard(context: NamespaceContext, number: int, is_locked: Callable[[int], bool]) -> Plan[ShardFacts]:
    """Return the facts about one shard. Raises ValueError if a value does not have the format that scripts write."""

    def key(name: str) -> str:
        return shard_key(context.namespace, number, name)

    sent_ms = wall_ms()
    replies = yield Round(
        [
            Request(number, command=("HMGET", key("clock"), "fence", "election", "high", "outbox", "dropped", "held")),
            Request(number, command=("XLEN", key("inbox"))),
            Request(number, command=("XRANGE", key("inbox"), "-", "+", "COUNT", 1)),
            Request(number, command=("ZRANGE", key("slots"), 0, 0)),
            Request(number, command=("XLEN", key("events"))),
            # The last command, because then no time that the others return is ahead of a correct clock.
            Request(number, command=("TIME",)),
        ]
    )
    (fence, election, high, *counted), inbox, oldest, slots, outbox, time_ = (reply.value for reply in replies)
    if fence is not None and not is_fence(fence):
        raise ValueError(f"the field 'fence' of the key 'clock' is {fence!r}, not {FENCE_BYTES} bytes with two numbers")
    if high is not None and not high.isdigit():
        raise ValueError(f"the field 'high' of the key 'clock' is {high!r}, not a whole number")
    slot_end = None
    if slots:
        level, slot = slot_of(slots[0])
        slot_end = start(level, slot) + length(level)
    return ShardFacts(
        number=number,
        fence=fence or b"",
        election=election.decode() if election else "",
        high_ms=int(high or 0),
        inbox=inbox,
        oldest_new=oldest[0][0] if oldest else b"",
        oldest_due_ms=_earliest_ms(oldest[0][1][1]) if oldest else None,
        oldest_slot_end_ms=slot_end,
        outbox=outbox,
        outbox_bytes=int(counted[0] or 0),
        dropped=int(counted[1] or 0),
        held_ms=None if counted[2] is None else int(counted[2]) if counted[2].isdigit() else 0,
        locked=is_locked(number),
        clock=ClockReading.of_reply(time_, sent_ms),
    )


def _earliest_ms(packed: bytes) -> int | None:
    """Return the time of the earliest timer of an entry of the inbox; None if no event process accepts the entry."""
    try:
        return min((time_ms for time_ms, *_ in parse_entry(packed)), default=None)
    except CorruptTimers:
        return None


def undriven(shards: list[ShardFacts]) -> list[ShardFacts]:
    """Return the shards with waiting work and without progress of a driver."""
    return [shard for shard in shards if not shard.driven and shard.waiting_ms is not None]


def recheck(context: NamespaceContext, shard: ShardFacts, is_locked: Callable[[int], bool]) -> Plan[ShardFacts]:
    """Read the shard again. If a driver has made progress since ``shard`` was read, return the new facts.

    ``driven`` is set in the new facts. Without progress, return ``shard``, only with the present state of the lock.
    """
    now = yield from read_shard(context, shard.number, is_locked)
    return replace(now, driven=True) if now.has_moved(shard) else replace(shard, locked=now.locked)


def watch_undriven(
    shards: dict[int, ShardFacts],
    *,
    embedded: bool,
    read_again: Callable[[ShardFacts], ShardFacts | None],
) -> None:
    """Read undriven shards again until their drivers make progress, for up to RECHECK_S.

    Updates ``shards``, and removes a shard that is unreadable (``read_again`` returns None).
    """
    until = time.monotonic() + RECHECK_S
    while time.monotonic() < until:
        # An embedded namespace without an event process is healthy: its wheel is driven only while programs use it.
        waiting = [shard for shard in undriven(list(shards.values())) if shard.locked or not embedded]
        if not waiting:
            return
        time.sleep(RECHECK_PAUSE_S)
        for shard in waiting:
            del shards[shard.number]
            facts = read_again(shard)
            if facts is not None:
                shards[shard.number] = facts


def check_shards(
    context: NamespaceContext, shards: list[ShardFacts], followed: frozenset[int] | None, *, embedded: bool
) -> Iterator[Finding]:
    """Check the driver, inbox, outbox and clock of the shards. Yield nothing if no shard was readable.

    ``followed`` are the shards from whose inbox an event process reads (`read_followed_shards`).
    """
    if not shards:
        return
    # If the followers are unknown, the guard of the last driver counts: the driver may run.
    held = [
        shard
        for shard in shards
        if shard.held_ms is not None and (shard.locked or followed is None or shard.number in followed)
    ]
    # The driver of a held shard runs, although it makes no progress.
    yield _driver([replace(s, driven=True) if s in held else s for s in shards], followed, embedded=embedded)
    if held:
        yield _clock_guard(held, context.clock_guard_ms)
    inbox = sum(shard.inbox for shard in shards)
    yield Finding("inbox", "ok", f"entries with new timers that wait to be filed: {inbox:,}")
    yield _outbox(context, shards)
    back = [shard for shard in shards if shard.mark_ahead_ms > context.clock_guard_ms]
    if back:
        yield _clock_mark(back, context.clock_guard_ms)


def _clock_guard(held: list[ShardFacts], guard_ms: int) -> Finding:
    # Event processes of an earlier version store 1 instead of the size of the step.
    steps = [shard.held_ms for shard in held if shard.held_ms is not None and shard.held_ms > guard_ms]
    size = f"{'up to ' if min(steps) < max(steps) else ''}{max(steps):,} ms " if steps else ""
    text = (
        f"shard {_numbers(held)}: the server's clock stepped {size}ahead of the time that the event process trusts, so"
        " messages that fall due are not promoted, and leases do not end"
    )
    if all(shard.clock.agrees(guard_ms) for shard in held):
        remedy = (
            "The server's clock agrees with this host's clock now, so it is probably right. If it is, accept it: send"
            " SIGUSR1 to the event process (kill -USR1)"
        )
    else:
        remedy = "Correct the clock. If it is right, send SIGUSR1 to the event process (kill -USR1)"
    return Finding("clock guard", "bad", f"{text}. {remedy}")


def _clock_mark(back: list[ShardFacts], guard_ms: int) -> Finding:
    furthest = max(shard.mark_ahead_ms for shard in back)
    text = (
        f"shard {_numbers(back)}: the wheel has reached a time that is {furthest:,} ms ahead of the server's clock, so"
        " the clock was set back"
    )
    if all(shard.clock.agrees(guard_ms) for shard in back):
        return Finding("clock mark", "warning", f"{text}. It agrees with this host's clock now")
    return Finding("clock mark", "bad", f"{text}. Correct the clock: if it is behind, messages are late by this amount")


def _numbers(shards: list[ShardFacts]) -> str:
    return ", ".join(str(shard.number) for shard in shards)


def _outbox(context: NamespaceContext, shards: list[ShardFacts]) -> Finding:
    text = f"entries with events: {sum(shard.outbox for shard in shards):,}"
    if context.history < RELAYED:
        kept = (
            f"the events of the last {context.history:,} calls of each shard are kept"
            if context.history
            else "history is off"
        )
        return Finding("outbox", "ok", f"{text}; {kept}")
    limit, drops = outbox_of(context.history)
    fullest, dropped = max(shard.outbox_bytes for shard in shards), sum(shard.dropped for shard in shards)
    text += f", kept until relayed; the fullest shard has {fullest:,} of {limit:,} bytes"
    if dropped:
        text += f"; {dropped:,} events were dropped: the events in Kafka have gaps"
    if fullest >= limit and not drops:
        return Finding("outbox", "bad", f"{text}: that shard rejects new messages until the relay has published events")
    full = 2 * fullest >= limit
    return Finding("outbox", "warning" if full or dropped else "ok", text + (": check the relay" if full else ""))


def check_queues(rows: QueueRows) -> Iterator[Finding]:
    """Report the unreadable queues, the number of queues, the blocked ones, and the sinks."""
    for text in rows.unreadable[:_UNREADABLE_QUEUES]:
        yield Finding("queues", "bad", text)
    if len(rows.unreadable) > _UNREADABLE_QUEUES:
        yield Finding("queues", "bad", f"and {len(rows.unreadable) - _UNREADABLE_QUEUES:,} more unreadable rows")
    configs = {name: config for name, config in sorted(rows.configs.items()) if not config.deleted}
    blocked = [
        f"{name} ({' and '.join(w for w in ('enqueue', 'dequeue') if getattr(config, f'{w}_blocked'))})"
        for name, config in configs.items()
        if (config.enqueue_blocked or config.dequeue_blocked) and not config.deleting
    ]
    deleting = [name for name, config in configs.items() if config.deleting]
    text = f"{len(configs):,} in all" + (f"; blocked: {', '.join(blocked)}" if blocked else "")
    text += f"; being deleted: {', '.join(deleting)}" if deleting else ""
    yield Finding("queues", "warning" if blocked or deleting else "ok", text)
    yield from _check_sinks({name: config.sink for name, config in configs.items() if config.sink is not None})


def _check_sinks(sinks: dict[str, str]) -> Iterator[Finding]:
    """Report the sinks of the queues. A client of an earlier version may have stored one that is not valid today."""
    served, refusals = [], []
    for queue, url in sinks.items():
        try:
            served.append(f"{queue} to {validate_sink_url(url)}")
        except InvalidArgument as error:
            refusals.append(f"queue {queue}: {error}")
    if served:
        yield Finding("sinks", "ok", f"{', '.join(served)}; event processes with --kafka deliver the messages")
    if refusals:
        text = f"queues whose messages stay Pending, because no event process serves their sink: {len(refusals):,}"
        yield Finding("sinks", "warning", f"{text}. The first is {refusals[0]}")


def _driver(shards: list[ShardFacts], followed: frozenset[int] | None, *, embedded: bool) -> Finding:
    late = undriven(shards)
    unlocked = [shard for shard in shards if not shard.locked]
    epochs = f"epoch {max(shard.epoch for shard in shards)}"
    if embedded and not any(shard.locked for shard in late) and unlocked:
        # This is normal: an embedded wheel is driven only while a program has the directory open.
        return Finding(
            "driver",
            "ok",
            "no program that drives the wheel has the directory open: messages that fall due wait until such a program,"
            " or `tickwheel events`, starts",
        )
    if late:
        longest = max(shard.waiting_ms or 0 for shard in late)
        waited = f"have waited or been due for {longest / 1000:,.0f} s" if longest else "wait"
        text = f"shard {_numbers(late)}: timers {waited}, and the wheel made no progress during the check"
        if any(shard.locked for shard in late):
            text += "; a process of this host holds the lock, but is frozen or stuck: check the log of the process"
            return Finding("driver", "warning", text)
        if followed and all(shard.number in followed for shard in late):
            text += "; an event process is connected to the shard, but is frozen or stuck: check the log of the process"
            return Finding("driver", "bad", text)
        return Finding("driver", "bad", f"{text}; no event process drives the shard: run `tickwheel events`")
    if not unlocked:
        return Finding("driver", "ok", f"a process of this host drives every shard, {epochs}")
    if not any(shard.epoch for shard in shards):
        return Finding("driver", "warning", "no event process has ever driven the namespace; run `tickwheel events`")
    if any(shard.driven for shard in unlocked):
        by = (
            "elected with ZooKeeper" if shards[0].election == "zookeeper" else "with another lock file than this host's"
        )
        return Finding("driver", "ok", f"an event process drives the namespace, {by}; {epochs}")
    if followed is None:
        return Finding("driver", "ok", f"no work waits; whether an event process runs was not checked; {epochs}")
    missing = [str(shard.number) for shard in unlocked if shard.number not in followed]
    if not missing:
        return Finding("driver", "ok", f"event processes follow every shard's inbox; {epochs}")
    which = f" of shard {', '.join(missing)}" if len(missing) < len(shards) else ""
    return Finding("driver", "warning", f"no event process{which} was detected, but no work waits; {epochs}")
