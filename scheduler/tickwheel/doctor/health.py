"""Health checks of shards and queues. The functions read facts about the shards of a namespace, and then judge them."""

from collections.abc import Iterator
from dataclasses import replace

from tickwheel.doctor.finding import Finding, Verdict
from tickwheel.doctor.followers import Followers
from tickwheel.doctor.overdue import OverdueMessages
from tickwheel.doctor.shard_facts import ShardFacts
from tickwheel.election.unclaimed_shards import UNCLAIMED_MS
from tickwheel.errors import InvalidArgument
from tickwheel.model.sink_url import validate_sink_url
from tickwheel.operations.context import RELAYED, NamespaceContext, outbox_of
from tickwheel.operations.removal.queue_numbers import QueueRows

# Maximum number of unreadable queues that get a finding of their own.
_UNREADABLE_QUEUES = 20
# By the kind of election, if it is not a lock file.
_ELECTED = {"zookeeper": "elected with ZooKeeper", "lease": "elected by lease"}
_COMMANDS = {
    "zookeeper": "`tickwheel events --election zk://...`, with the URL of the namespace's other event processes",
    "lease": "`tickwheel events --election lease`",
}


def undriven(shards: list[ShardFacts]) -> list[ShardFacts]:
    """Return the shards with waiting work and without progress of a driver."""
    return [shard for shard in shards if not shard.driven and shard.waiting_ms is not None]


def held_shards(shards: list[ShardFacts], followed: frozenset[int] | None) -> list[ShardFacts]:
    """Return the shards whose event process runs, but makes no progress, because its clock guard holds.

    If ``followed``, the shards from whose inbox an event process reads, is unknown, the event process may run.
    """
    return [
        shard
        for shard in shards
        if shard.held_ms is not None and (shard.is_led or followed is None or shard.number in followed)
    ]


def check_shards(
    context: NamespaceContext, shards: list[ShardFacts], followers: Followers, *, embedded: bool
) -> Iterator[Finding]:
    """Check the driver, inbox, outbox and clock of the shards. Yield nothing if no shard was readable."""
    if not shards:
        return
    held = held_shards(shards, followers.shards)
    # The driver of a held shard runs, although it makes no progress.
    yield _driver([replace(s, driven=True) if s in held else s for s in shards], followers, embedded=embedded)
    if held:
        yield _clock_guard(held, context.clock_guard_ms)
    inbox = sum(shard.inbox for shard in shards)
    yield Finding("inbox", "ok", f"entries with new timers that wait to be filed: {inbox:,}")
    yield _outbox(context, shards)
    back = [shard for shard in shards if shard.mark_ahead_ms > context.clock_guard_ms]
    if back:
        yield _clock_mark(back, context.clock_guard_ms)


def check_overdue(overdue: OverdueMessages, stalled: list[ShardFacts], followers: Followers) -> Iterator[Finding]:
    """Report the overdue messages of the shards ``stalled``, whose wheels have made no progress."""
    if not stalled:
        return
    count, first = sum(overdue[shard.number].count for shard in stalled), stalled[0].number
    text = f"messages that are due, or whose leases have ended, but that the wheel does not move: {count:,}"
    example = f"An example: shard {first}, {overdue[first].example}"
    yield Finding("overdue", "bad", f"{text}; {_explain_stall(stalled, followers)}. {example}")


def _clock_guard(held: list[ShardFacts], guard_ms: int) -> Finding:
    steps = [shard.held_ms or 0 for shard in held]
    size = f"{'up to ' if min(steps) < max(steps) else ''}{max(steps):,} ms"
    text = (
        f"shard {_numbers(held)}: the server's clock stepped {size} ahead of the time that the event process trusts, so"
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


def _explain_stall(stalled: list[ShardFacts], followers: Followers) -> str:
    """Return why the wheels of these shards make no progress, and the remedy."""
    frozen = "but is frozen or stuck: check the log of the process"
    if any(shard.locked for shard in stalled):
        return f"a process of this host holds the lock, {frozen}"
    if leaders := sorted({shard.leader for shard in stalled if shard.leader}):
        return f"{', '.join(leaders)} leads the shard, {frozen}"
    abandoned = [shard for shard in stalled if shard.number not in (followers.shards or ())]
    if not abandoned:
        return f"an event process is connected to the shard, {frozen}"
    # The shards reject an event process with another kind of election.
    command = next(
        (_COMMANDS[shard.election] for shard in abandoned if shard.election in _COMMANDS), "`tickwheel events`"
    )
    return f"no event process drives the shard: run {command}"


def _driver(shards: list[ShardFacts], followers: Followers, *, embedded: bool) -> Finding:
    late = undriven(shards)
    unled = [shard for shard in shards if not shard.is_led]
    epochs = f"epoch {max(shard.epoch for shard in shards)}"
    if embedded and not any(shard.locked for shard in late) and unled:
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
        verdict: Verdict = "warning" if any(shard.is_led for shard in late) else "bad"
        return Finding("driver", verdict, f"{text}; {_explain_stall(late, followers)}")
    if not unled:
        by = "a process of this host drives" if shards[0].locked else "processes that are elected by lease drive"
        return Finding("driver", "ok", f"{by} every shard, {epochs}")
    if not any(shard.epoch for shard in shards):
        never = (
            "no event process has ever driven the namespace; run `tickwheel events`; a worker or a service with"
            f" `--drive auto` drives, too, {UNCLAIMED_MS / 1_000:g} s after its start, or logs why it does not"
        )
        return Finding("driver", "warning", never)
    if any(shard.driven for shard in unled):
        by = _ELECTED.get(shards[0].election, "with another lock file than this host's")
        return Finding("driver", "ok", f"an event process drives the namespace, {by}; {epochs}")
    if followers.shards is None:
        return Finding(
            "driver", "ok", f"no work has waited for long; whether an event process runs was not checked; {epochs}"
        )
    missing = [str(shard.number) for shard in unled if shard.number not in followers.shards]
    if not missing:
        users = ", ".join(map(repr, sorted(followers.users - {"default"})))
        text = "event processes follow every shard's inbox" + (f", connected as {users}" if users else "")
        return Finding("driver", "ok", f"{text}; {epochs}")
    which = f" of shard {', '.join(missing)}" if len(missing) < len(shards) else ""
    text = f"no event process{which} was detected, but no work has waited for long; {epochs}"
    return Finding("driver", "warning", text)
