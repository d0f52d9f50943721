"""Health checks of shards and queues. The functions read facts about the shards of a namespace, and then judge them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tickwheel.doctor.finding import Finding
from tickwheel.doctor.server_health import ServerFacts
from tickwheel.doctor.slots_in_use import SLOT_MS, SlotsInUse, read_slots, slots_command
from tickwheel.errors import InvalidArgument
from tickwheel.model.sink_url import validate_sink_url
from tickwheel.operations.context import RELAYED, NamespaceContext, outbox_of
from tickwheel.operations.removal.queue_numbers import QueueRows
from tickwheel.plan import Plan, Request, Round
from tickwheel.storage.fence import FENCE_BYTES, epoch_of, is_fence
from tickwheel.storage.keys import shard_key

# A driver files a new timer at most two seconds after reading it. If an entry of the inbox or a slot (`SlotsInUse`)
# has waited for longer than the limits, either no driver runs, or a driver has just started and has found old work. So
# `recheck` checks for progress.
_INBOX_MS = 5_000
# Maximum number of unreadable queues that get a finding of their own.
_UNREADABLE_QUEUES = 20


@dataclass(slots=True)
class ShardFacts:
    """Facts about one shard.

    ``locked``: a process of this host holds the election lock of the shard. ``driven``: a driver made progress between
    two reads. ``held``: the last driver's clock guard held.
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
    driven: bool = False
    held: bool = False
    outbox_bytes: int = 0
    dropped: int = 0

    @property
    def epoch(self) -> int:
        return epoch_of(self.fence) if self.fence else 0

    def waiting_ms(self, now_ms: int) -> int | None:
        """Return the longest wait, in ms, of work that a driver would have done by now, or None without such work."""
        waits = []
        if self.oldest_new and now_ms - _entry_ms(self.oldest_new) > _INBOX_MS:
            waits.append(now_ms - _entry_ms(self.oldest_new))
        if self.slots.waiting_ms(now_ms) > SLOT_MS:
            waits.append(self.slots.waiting_ms(now_ms))
        return max(waits, default=None)

    def has_moved(self, before: "ShardFacts") -> bool:
        """Return whether a driver has claimed the shard, fired timers, changed a slot or filed timers since ``before``.

        Only drivers make these changes.
        """
        if (before.fence, before.high_ms) != (self.fence, self.high_ms) or self.slots.has_moved(before.slots):
            return True
        # If the inbox was empty, a new first entry comes from an enqueue and not from a driver.
        return before.oldest_new not in (b"", self.oldest_new)


def read_shard(context: NamespaceContext, number: int, is_locked: Callable[[int], bool]) -> Plan[ShardFacts]:
    """Return the facts about one shard. Raises ValueError if a value does not have the format that scripts write."""

    def key(name: str) -> str:
        return shard_key(context.namespace, number, name)

    replies = yield Round(
        [
            Request(number, command=("HMGET", key("clock"), "fence", "election", "high", "outbox", "dropped", "held")),
            Request(number, command=("XLEN", key("inbox"))),
            Request(number, command=("XRANGE", key("inbox"), "-", "+", "COUNT", 1)),
            Request(number, command=slots_command(context, number)),
            Request(number, command=("XLEN", key("events"))),
            Request(number, command=("TIME",)),
        ]
    )
    (fence, election, high, *counted), inbox, oldest, slots, outbox, time = (reply.value for reply in replies)
    if fence is not None and not is_fence(fence):
        raise ValueError(f"the field 'fence' of the key 'clock' is {fence!r}, not {FENCE_BYTES} bytes with two numbers")
    if high is not None and not high.isdigit():
        raise ValueError(f"the field 'high' of the key 'clock' is {high!r}, not a whole number")
    return ShardFacts(
        number=number,
        fence=fence or b"",
        election=election.decode() if election else "",
        high_ms=int(high or 0),
        inbox=inbox,
        oldest_new=oldest[0][0] if oldest else b"",
        slots=(yield from read_slots(context, number, slots, int(time[0]) * 1000)),
        outbox=outbox,
        outbox_bytes=int(counted[0] or 0),
        dropped=int(counted[1] or 0),
        held=counted[2] is not None,
        locked=is_locked(number),
    )


def undriven(shards: list[ShardFacts], now_ms: int) -> list[ShardFacts]:
    """Return the shards with waiting work and without progress of a driver."""
    return [shard for shard in shards if not shard.driven and shard.waiting_ms(now_ms) is not None]


def held_shards(shards: list[ShardFacts], followed: frozenset[int] | None) -> list[ShardFacts]:
    """Return the shards whose event process runs, but makes no progress, because its clock guard holds.

    If ``followed``, the shards from whose inbox an event process reads, is unknown, the event process may run.
    """
    return [shard for shard in shards if shard.held and (shard.locked or followed is None or shard.number in followed)]


def check_shards(
    context: NamespaceContext, shards: list[ShardFacts], facts: ServerFacts, *, embedded: bool
) -> Iterator[Finding]:
    """Check the driver, inbox, outbox and clock of the shards. Yield nothing if no shard was readable."""
    if not shards:
        return
    held = held_shards(shards, facts.followed_shards)
    # The driver of a held shard runs, although it makes no progress.
    yield _driver([replace(s, driven=True) if s in held else s for s in shards], facts, embedded=embedded)
    if held:
        which, ahead = ", ".join(str(s.number) for s in held), facts.now_ms - min(s.high_ms for s in held)
        yield Finding(
            "clock guard",
            "bad",
            f"shard {which}: the server's clock is {ahead:,} ms ahead of the time that the event process trusts, so no"
            " message is promoted. Correct the clock. If it is right, send SIGUSR1 to the event process",
        )
    inbox = sum(shard.inbox for shard in shards)
    yield Finding("inbox", "ok", f"entries with new timers that wait to be filed: {inbox:,}")
    yield _outbox(context, shards)
    back = max(shard.high_ms for shard in shards) - facts.now_ms
    if back > context.clock_guard_ms:
        yield Finding(
            "clock mark",
            "bad",
            f"the wheel has reached a time that is {back:,} ms ahead of the server's clock: the clock was set back, and"
            " messages will be late by this amount",
        )


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
        if config.enqueue_blocked or config.dequeue_blocked
    ]
    text = f"{len(configs):,} in all" + (f"; blocked: {', '.join(blocked)}" if blocked else "")
    yield Finding("queues", "warning" if blocked else "ok", text)
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


def _driver(shards: list[ShardFacts], facts: ServerFacts, *, embedded: bool) -> Finding:
    late = undriven(shards, facts.now_ms)
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
        longest = max(shard.waiting_ms(facts.now_ms) or 0 for shard in late)
        which = ", ".join(str(shard.number) for shard in late)
        text = (
            f"shard {which}: timers have waited for {longest / 1000:,.0f} s, and the wheel made no progress during the"
            " check"
        )
        if any(shard.locked for shard in late):
            text += "; a process of this host holds the lock, but is frozen or stuck: check the log of the process"
            return Finding("driver", "warning", text)
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
    if facts.followed_shards is None:
        return Finding(
            "driver", "ok", f"no work has waited for long; whether an event process runs was not checked; {epochs}"
        )
    missing = [str(shard.number) for shard in unlocked if shard.number not in facts.followed_shards]
    if not missing:
        users = ", ".join(map(repr, sorted(facts.following_users - {"default"})))
        text = "event processes follow every shard's inbox" + (f", connected as {users}" if users else "")
        return Finding("driver", "ok", f"{text}; {epochs}")
    which = f" of shard {', '.join(missing)}" if len(missing) < len(shards) else ""
    text = f"no event process{which} was detected, but no work has waited for long; {epochs}"
    return Finding("driver", "warning", text)


def _entry_ms(entry_id: bytes) -> int:
    return int(entry_id.partition(b"-")[0])
