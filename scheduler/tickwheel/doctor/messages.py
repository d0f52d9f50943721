"""Checks the messages: each record has the index entries, counters, body and timer that it implies."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tickwheel.doctor.expected_entries import ExpectedEntries
from tickwheel.doctor.overdue import OverdueInShard
from tickwheel.doctor.shard_reader import ShardReader, Walk
from tickwheel.doctor.timers import TimerBloomFilter
from tickwheel.plan import Command, Plan, pairs_from_flat
from tickwheel.storage.record import BODY, State
from tickwheel.storage.sharding import shard_of

Problems = Iterator[tuple[str, str]]
AnswerCheck = Callable[[list[Any]], Problems]

_FENCED = {b"fence", b"election", b"owner", b"holder"}
_CLOCK_FIELDS = _FENCED | {
    b"seq",
    b"outbox",
    b"dropped",
    b"high",
    b"created",
    b"embedded",
    b"former_election",
    b"held",
    b"accepted",
    b"barriers",
    b"deletion",
}
# Maximum number of recounts. A walk can return an entry twice while the hash is resized; the recount is then repeated.
_RECOUNTS = 3


def check_messages(shard: ShardReader, timers: TimerBloomFilter) -> Plan[None]:
    """Check all messages of the shard. ``timers`` are the timers of the wheel, which was read before."""
    for _ in range(_RECOUNTS):
        before = yield from _fingerprint(shard)
        tally = yield from _walk(shard, timers)
        [messages] = yield from shard.execute([("HLEN", shard.key("messages"))])
        if before != (yield from _fingerprint(shard)):
            # The shard changed during the walk, so the counters cannot be compared with the recount.
            return
        if tally.messages == messages:
            problems = yield from _compare_counters(shard, tally)
            # A change after the walk is not in the recount either.
            if before == (yield from _fingerprint(shard)):
                for where, text in problems:
                    shard.add_finding(where, text)
            return
    shard.add_finding(
        "messages",
        f"in each of {_RECOUNTS} walks, the number of messages found was not the number in the shard; the counters were"
        " not checked",
    )


class _Tally:
    """Counts from the records, to compare with the stored counters."""

    def __init__(self) -> None:
        self.messages = 0
        self.bodies = 0
        self.sequence = 0
        self.states: Counter[tuple[str, int]] = Counter()
        self.minutes: Counter[tuple[str, int]] = Counter()

    def add(self, message: ExpectedEntries) -> None:
        self.bodies += bool(message.record.flags & BODY)
        self.sequence = max(self.sequence, message.record.incarnation)
        self.states[message.queue, message.record.state] += 1
        if message.config.forecast and message.record.state is State.INVISIBLE:
            self.minutes[message.queue, message.record.until_ms // 60_000] += 1


def _fingerprint(shard: ShardReader) -> Plan[list[Any]]:
    """Return values that identify the messages in each state: each change of a counter changes at least one of them.

    If transitions restore the counts, one of them is an enqueue, which changes `seq`, or a dequeue or a reschedule,
    which adds a timer to the inbox. The last id of the inbox stays when an event process removes entries. So the
    fingerprint detects the changes of a namespace without a history, too.
    """
    inbox = shard.key("inbox")
    [exists] = yield from shard.execute([("EXISTS", inbox)])
    streams = (yield from shard.execute([("XINFO", "STREAM", inbox)])) if exists else []
    last_ids = [dict(pairs_from_flat(stream))[b"last-generated-id"] for stream in streams]
    counts = (("HGETALL", shard.queue_key(name, "counts")) for name, _ in shard.queues.values())
    last_event = ("XREVRANGE", shard.key("events"), "+", "-", "COUNT", 1)
    return last_ids + (yield from shard.execute([("HGET", shard.key("clock"), "seq"), last_event, *counts]))


def _walk(shard: ShardReader, timers: TimerBloomFilter) -> Plan[_Tally]:
    tally = _Tally()
    [[seconds, _]] = yield from shard.execute([("TIME",)])
    overdue = OverdueInShard(int(seconds) * 1000)
    walk = Walk(shard, "HSCAN", shard.key("messages"))
    while not walk.ended:
        commands: list[Command] = []
        checks: list[tuple[ExpectedEntries, AnswerCheck, int]] = []
        for field, stored in (yield from walk.next()):
            tally.messages += 1
            queue, _ = shard.queues.get(int.from_bytes(field[:2], "big"), (None, None))
            if queue is None:
                shard.add_finding(f"message {field.hex()}", "its queue does not exist")
                continue
            try:
                message = shard.expected_entries(field, stored)
            except ValueError as error:
                shard.add_finding(f"queue {queue}, message {field[2:]!r}", str(error))
                continue
            tally.add(message)
            overdue.add(message)
            _check_record(shard, message, timers)
            for message_commands, check in _expectations(shard, message):
                checks.append((message, check, len(message_commands)))
                commands += message_commands
        answers = yield from shard.execute(commands)
        offset = 0
        for message, check, length in checks:
            for where, text in check(answers[offset : offset + length]):
                shard.add_finding(f"{message.label}, {where}", text)
            offset += length
    if overdue.count:
        shard.overdue[shard.number] = overdue
    return tally


def _check_record(shard: ShardReader, message: ExpectedEntries, timers: TimerBloomFilter) -> None:
    key, pairs = message.name, message.record.metadata
    if message.exclusive:
        key = message.prefix[2:]
        if pairs and pairs.get(message.config.exclusive_key or "", "").encode() != key:
            shard.add_finding(f"{message.label}, metadata", f"its exclusive value is not {key!r}: {pairs}")
    expected_shard = shard_of(message.queue, key, shard.context.shards)
    if expected_shard != shard.number:
        shard.add_finding(f"{message.label}, shard", f"it belongs to shard {expected_shard}")
    timer = message.timer()
    if timer is not None and not timers.has(message.config.number, message.name, *timer):
        shard.add_finding(
            f"{message.label}, timer", f"the wheel has no {timer[0].name.lower()} timer for it at or before its time"
        )


def _expectations(shard: ShardReader, message: ExpectedEntries) -> Iterator[tuple[list[Command], AnswerCheck]]:
    def key(name: str) -> str:
        return shard.queue_key(message.queue, name)

    pending = message.record.state is State.PENDING
    body = bool(message.record.flags & BODY)
    field = message.config.number.to_bytes(2, "big") + message.name + message.record.digest
    yield [("HEXISTS", shard.key("bodies"), field)], _check_presence("body", body)
    score = message.record.deadline_ms if pending else None
    if not message.exclusive:
        yield [("ZSCORE", key("ready"), message.ready)], _check_score("ready", score)
        for pair in message.pairs:
            entry = message.pair_entry(pair)
            yield [("ZSCORE", key("pairs"), entry)], _check_score(f"pairs {pair[2:]!r}", 0 if pending else None)
        return
    lock_commands: list[Command] = [
        ("HGET", key("locks"), message.prefix[2:]),
        ("ZSCORE", key("ready"), message.ready),
        ("ZSCORE", key("waiting"), message.waiting),
    ]
    yield lock_commands, partial(_check_exclusive_indexes, message)
    for pair in message.pairs:
        entry, group = message.value_pair_entry(pair), message.prefix + pair
        pair_commands: list[Command] = [
            ("ZSCORE", key("vpairs"), entry),
            ("ZRANGEBYLEX", key("vpairs"), b"[" + group, b"(" + group + b"\xff", "LIMIT", 0, 1),
            ("ZSCORE", key("pairs"), message.pair_entry(pair)),
            ("ZSCORE", key("parked"), group),
        ]
        yield pair_commands, partial(_check_pair_indexes, pending, pair, entry)


def _check_presence(label: str, expected: bool) -> AnswerCheck:
    def check(answers: list[Any]) -> Problems:
        if bool(answers[0]) != expected:
            yield label, "it is missing" if expected else "it exists and should not"

    return check


def _check_score(label: str, expected: int | None) -> AnswerCheck:
    def check(answers: list[Any]) -> Problems:
        # float, not int: a score may be infinite.
        score = None if answers[0] is None else float(answers[0])
        if score != expected:
            yield label, f"its score is {score if score is None else f'{score:.17g}'}, not {expected}"

    return check


def _check_exclusive_indexes(message: ExpectedEntries, answers: list[Any]) -> Problems:
    """Check the indexes of a message with an exclusive value.

    Invariant: either one message holds the exclusive value, or one Pending message of the value is the *head*, which is
    delivered next. The head is in `ready`. The other Pending messages of the value are in `waiting`.
    """
    lock, ready, waiting = answers
    if message.holds_value and lock != message.leased_lock:
        yield "locks", f"it holds its exclusive value, but the lock is {lock!r}"
    if not message.holds_value and lock == message.leased_lock:
        yield "locks", f"it has the lock of its exclusive value, but is {message.record.state.label}"
    pending = message.record.state is State.PENDING
    is_head = pending and lock == message.head_lock
    if pending and lock is None:
        yield "locks", "it is pending, but its exclusive value has no lock"
    if pending and lock is not None and lock[:1] == b"H" and not is_head and lock[1:15] > message.order:
        yield "locks", f"it is more urgent than the head of its exclusive value, {lock!r}"
    if (ready is not None) != is_head or (is_head and float(ready or 0) != message.record.deadline_ms):
        yield "ready", f"its score is {ready!r}, and it is {'' if is_head else 'not '}the head of its exclusive value"
    if (waiting is not None) != (pending and not is_head):
        problem = "is missing" if waiting is None else "exists and should not"
        yield "waiting", f"it {problem}; the lock of its exclusive value is {lock!r}"


def _check_pair_indexes(pending: bool, pair: bytes, entry: bytes, answers: list[Any]) -> Problems:
    """Check the indexes of one metadata pair of a message with an exclusive value.

    The Pending messages with the same exclusive value and the same pair are a *group*. Invariant: `vpairs` has all
    messages of the group, and `pairs` has the first of them. While another message holds the value, the group may be in
    `parked`; `pairs` then has no message of the group.
    """
    score, first, in_pairs, parked = answers
    if (score is not None) != pending:
        yield f"vpairs {pair[2:]!r}", "it is missing" if pending else "it exists and should not"
    expected = pending and first[:1] == [entry] and parked is None
    if (in_pairs is not None) != expected:
        yield f"pairs {pair[2:]!r}", "it is missing" if expected else "it exists and should not"


def _compare_counters(shard: ShardReader, tally: _Tally) -> Plan[list[tuple[str, str]]]:
    """Return the location and the text of each counter that differs from the recount."""
    problems: list[tuple[str, str]] = []
    clock, bodies = yield from shard.execute([("HGETALL", shard.key("clock")), ("HLEN", shard.key("bodies"))])
    fields = dict(pairs_from_flat(clock))
    known = _CLOCK_FIELDS if shard.context.clock == "_clock" else _CLOCK_FIELDS | {b"now"}
    if fields.keys() - known:
        problems.append(("clock", f"it has unknown fields {sorted(fields.keys() - known)}"))
    if tally.sequence > int(fields.get(b"seq", 0)):
        problems.append(
            ("clock", f"its field 'seq' is {fields.get(b'seq')!r}, but incarnation {tally.sequence} exists")
        )
    if bodies != tally.bodies:
        problems.append(("bodies", f"the shard has {bodies} bodies, but {tally.bodies} messages with a body"))
    for name, config in shard.queues.values():
        counts, minutes, (version, errored) = yield from shard.execute(
            [
                ("HGETALL", shard.queue_key(name, "counts")),
                ("HGETALL", shard.queue_key(name, "forecast")),
                ("HMGET", shard.queue_key(name, "config"), "version", "errored"),
            ]
        )
        if errored is not None and not errored.isdigit():
            problems.append((f"queue {name}, config", f"its field 'errored' is {errored!r:.80}, which is no number"))
        counted = {int(state): int(count) for state, count in pairs_from_flat(counts)}
        for state in sorted(counted.keys() | {state for queue, state in tally.states if queue == name}):
            if counted.get(state, 0) != tally.states[name, state]:
                text = f"the counter is {counted.get(state, 0)}, but the queue has {tally.states[name, state]} messages"
                problems.append((f"queue {name}, counts of state {state}", text))
        forecast = {int(minute): int(count) for minute, count in pairs_from_flat(minutes)}
        recounted = {minute: count for (queue, minute), count in tally.minutes.items() if queue == name}
        if forecast != recounted:
            problems.append((f"queue {name}, forecast", f"it is {forecast}, but the messages result in {recounted}"))
        if version is not None and (version[:4] > config.packed_version[:4] or version[4:] != config.uid):
            # The location has the version, because each pass of an audit can meet a later update of the configuration.
            where = f"queue {name}, config version {version.hex()}"
            problems.append((where, f"the metadata shard has version {config.version}"))
    return problems
