"""Each record, and every index entry, counter, body and timer that it implies."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tickwheel.doctor.expected_entries import Implied, read
from tickwheel.doctor.shard_reader import Shard, Walk
from tickwheel.doctor.wheel import Sieve
from tickwheel.plan import Command, Plan, pairwise
from tickwheel.storage.record import BODY, State
from tickwheel.storage.sharding import shard_of

Problems = Iterator[tuple[str, str]]
Judge = Callable[[list[Any]], Problems]

_FENCED = {b"fence", b"election", b"owner"}
_CLOCK_FIELDS = _FENCED | {b"seq", b"outbox", b"dropped", b"high", b"accepted", b"barriers"}
# A recount that met an entry twice, because the hash was being resized, is made again.
_RECOUNTS = 3


def check_messages(shard: Shard, timers: Sieve) -> Plan[None]:
    """Walk over all messages of the shard. ``timers`` holds what is on the wheel, read before."""
    for _ in range(_RECOUNTS):
        before = yield from _fingerprint(shard)
        tally = yield from _walk(shard, timers)
        after = yield from _fingerprint(shard)
        if before != after:
            # At work: counters and what they count were not read at one moment.
            return
        if tally.messages == (yield from shard.ask([("HLEN", shard.key("messages"))]))[0]:
            yield from _check_counters(shard, tally)
            return
    shard.find("messages", f"{_RECOUNTS} walks gave different numbers of messages; nothing was recounted")


class _Tally:
    """The recount."""

    def __init__(self) -> None:
        self.messages = 0
        self.bodies = 0
        self.sequence = 0
        self.states: Counter[tuple[str, int]] = Counter()
        self.minutes: Counter[tuple[str, int]] = Counter()

    def add(self, message: Implied) -> None:
        self.bodies += bool(message.record.flags & BODY)
        self.sequence = max(self.sequence, message.record.incarnation)
        self.states[message.queue, message.record.state] += 1
        if message.config.forecast and message.record.state is State.INVISIBLE:
            self.minutes[message.queue, message.record.until_ms // 60_000] += 1


def _fingerprint(shard: Shard) -> Plan[list[Any]]:
    """What changes with every transition."""
    counts = (("HGETALL", shard.queue_key(name, "counts")) for name, _ in shard.queues.values())
    last_event = ("XREVRANGE", shard.key("events"), "+", "-", "COUNT", 1)
    return (yield from shard.ask([("HGET", shard.key("clock"), "seq"), last_event, *counts]))


def _walk(shard: Shard, timers: Sieve) -> Plan[_Tally]:
    tally = _Tally()
    walk = Walk(shard, "HSCAN", shard.key("messages"))
    while not walk.ended:
        commands: list[Command] = []
        judges: list[tuple[Implied, Judge, int]] = []
        for field, stored in (yield from walk.next()):
            tally.messages += 1
            queue, config = shard.queues.get(int.from_bytes(field[:2], "big"), (None, None))
            if queue is None or config is None:
                shard.find(f"message {field.hex()}", "its queue does not exist")
                continue
            try:
                message = read(queue, config, field[2:], stored)
            except ValueError as error:
                shard.find(f"queue {queue}, message {field[2:]!r}", str(error))
                continue
            tally.add(message)
            _check_alone(shard, message, timers)
            for asked, judge in _expectations(shard, message):
                judges.append((message, judge, len(asked)))
                commands += asked
        answers = yield from shard.ask(commands)
        at = 0
        for message, judge, length in judges:
            for where, text in judge(answers[at : at + length]):
                shard.find(f"{message.label}, {where}", text)
            at += length
    return tally


def _check_alone(shard: Shard, message: Implied, timers: Sieve) -> None:
    key, pairs = message.name, message.record.metadata
    if message.exclusive:
        key = message.prefix[2:]
        if pairs and pairs.get(message.config.exclusive_key or "", "").encode() != key:
            shard.find(f"{message.label}, metadata", f"its exclusive value is not {key!r}: {pairs}")
    home = shard_of(message.queue, key, shard.core.shards)
    if home != shard.number:
        shard.find(f"{message.label}, shard", f"it belongs to shard {home}")
    timer = message.timer()
    if timer is not None and not timers.has(message.config.number, message.name, *timer):
        shard.find(
            f"{message.label}, timer", f"no {timer[0].name.lower()} timer is on the wheel, at or before its time"
        )


def _expectations(shard: Shard, message: Implied) -> Iterator[tuple[list[Command], Judge]]:
    def key(name: str) -> str:
        return shard.queue_key(message.queue, name)

    pending = message.record.state is State.PENDING
    body = bool(message.record.flags & BODY)
    field = message.config.number.to_bytes(2, "big") + message.name + message.record.digest
    yield [("HEXISTS", shard.key("bodies"), field)], _is("body", body)
    score = message.record.deadline_ms if pending else None
    if not message.exclusive:
        yield [("ZSCORE", key("ready"), message.ready)], _has_score("ready", score)
        for pair in message.pairs():
            entry = message.pair_entry(pair)
            yield [("ZSCORE", key("pairs"), entry)], _has_score(f"pairs {pair[2:]!r}", 0 if pending else None)
        return
    place: list[Command] = [
        ("HGET", key("locks"), message.prefix[2:]),
        ("ZSCORE", key("ready"), message.ready),
        ("ZSCORE", key("waiting"), message.waiting),
    ]
    yield place, partial(_judge_place, message)
    for pair in message.pairs():
        entry, group = message.value_pair_entry(pair), message.prefix + pair
        asked: list[Command] = [
            ("ZSCORE", key("vpairs"), entry),
            ("ZRANGEBYLEX", key("vpairs"), b"[" + group, b"(" + group + b"\xff", "LIMIT", 0, 1),
            ("ZSCORE", key("pairs"), message.pair_entry(pair)),
            ("ZSCORE", key("parked"), group),
        ]
        yield asked, partial(_judge_group, pending, pair, entry)


def _is(what: str, wanted: bool) -> Judge:
    def judge(answers: list[Any]) -> Problems:
        if bool(answers[0]) != wanted:
            yield what, "it is missing" if wanted else "it is there and should not"

    return judge


def _has_score(what: str, wanted: int | None) -> Judge:
    def judge(answers: list[Any]) -> Problems:
        # Not as an int: a score may be infinite.
        found = None if answers[0] is None else float(answers[0])
        if found != wanted:
            yield what, f"its score is {found if found is None else f'{found:.17g}'}, not {wanted}"

    return judge


def _judge_place(message: Implied, answers: list[Any]) -> Problems:
    """Of each value: one leased or one head in `ready`, all others in `waiting`."""
    lock, ready, waiting = answers
    if message.holds_value and lock != message.leased_lock:
        yield "locks", f"it holds its value, and the lock is {lock!r}"
    if not message.holds_value and lock == message.leased_lock:
        yield "locks", f"its value is locked by it, and it is {message.record.state.label}"
    pending = message.record.state is State.PENDING
    is_head = pending and lock == message.head_lock
    if pending and lock is None:
        yield "locks", "it is pending, and its value has no lock"
    if pending and lock is not None and lock[:1] == b"H" and not is_head and lock[1:15] > message.order:
        yield "locks", f"it is more urgent than the head of its value, {lock!r}"
    if (ready is not None) != is_head or (is_head and float(ready or 0) != message.record.deadline_ms):
        yield "ready", f"its score is {ready!r}, and it is {'' if is_head else 'not '}the head of its value"
    if (waiting is not None) != (pending and not is_head):
        yield "waiting", f"it is {'missing' if waiting is None else 'there'}, and its value's lock is {lock!r}"


def _judge_group(pending: bool, pair: bytes, entry: bytes, answers: list[Any]) -> Problems:
    """Of each pair of a value: `vpairs` has all, `pairs` the head alone, and not even that while it is parked."""
    score, first, in_pairs, parked = answers
    if (score is not None) != pending:
        yield f"vpairs {pair[2:]!r}", f"it is {'missing' if pending else 'there'}"
    wanted = pending and first[:1] == [entry] and parked is None
    if (in_pairs is not None) != wanted:
        yield f"pairs {pair[2:]!r}", "it is missing" if wanted else "it is there and should not"


def _check_counters(shard: Shard, tally: _Tally) -> Plan[None]:
    clock, bodies = yield from shard.ask([("HGETALL", shard.key("clock")), ("HLEN", shard.key("bodies"))])
    fields = dict(pairwise(clock))
    known = _CLOCK_FIELDS if shard.core.clock == "_clock" else _CLOCK_FIELDS | {b"now"}
    if fields.keys() - known:
        shard.find("clock", f"it has unknown fields {sorted(fields.keys() - known)}")
    if tally.sequence > int(fields.get(b"seq", 0)):
        shard.find("clock", f"the sequence is {fields.get(b'seq')!r}, and incarnation {tally.sequence} exists")
    if bodies != tally.bodies:
        shard.find("bodies", f"there are {bodies}, and {tally.bodies} messages have one")
    for name, config in shard.queues.values():
        counts, minutes, version = yield from shard.ask(
            [
                ("HGETALL", shard.queue_key(name, "counts")),
                ("HGETALL", shard.queue_key(name, "forecast")),
                ("HGET", shard.queue_key(name, "config"), "version"),
            ]
        )
        counted = {int(state): int(count) for state, count in pairwise(counts)}
        for state in sorted(counted.keys() | {state for queue, state in tally.states if queue == name}):
            if counted.get(state, 0) != tally.states[name, state]:
                shard.find(
                    f"queue {name}, counts of state {state}",
                    f"{counted.get(state, 0)} are counted, and {tally.states[name, state]} are there",
                )
        forecast = {int(minute): int(count) for minute, count in pairwise(minutes)}
        recounted = {minute: count for (queue, minute), count in tally.minutes.items() if queue == name}
        if forecast != recounted:
            shard.find(f"queue {name}, forecast", f"it is {forecast}, and the messages make it {recounted}")
        if version is not None and (version[:4] > config.packed_version[:4] or version[4:] != config.stamp):
            shard.find(f"queue {name}, config", f"it has version {version.hex()}, and home {config.version}")
