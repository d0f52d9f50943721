"""The audit reports nothing for a sound namespace, and reports every damage."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import redis

from tickwheel import NewMessage, Tickwheel
from tickwheel.doctor import LIVE_PASSES, audit
from tickwheel.storage.keys import shard_key
from tickwheel.storage.transition import decode
from tickwheel.testing import PrivateServer, VirtualClock, sandbox

pytestmark = pytest.mark.integration


class Patient:
    """A namespace with messages in every state, and the server on which a test damages the namespace."""

    def __init__(self, tw: Tickwheel, server: "redis.Redis") -> None:
        self.tw = tw
        self.server: Any = server

    def key(self, name: str) -> str:
        return shard_key(self.tw._context.namespace, 0, name)

    def field(self, key: str) -> Any:
        """Return a field of a hash."""
        return self.server.hkeys(self.key(key))[0]

    def member(self, key: str) -> Any:
        """Return a member of a sorted set."""
        return self.server.zrange(self.key(key), 0, 0)[0]

    def record(self, state: bytes) -> Any:
        """Return the field of a message in a state."""
        return next(name for name, stored in self.server.hgetall(self.key("messages")).items() if stored[:1] == state)

    def add_attempt(self, state: bytes) -> None:
        """Count one attempt too many in the record of a message in a state."""
        field = self.record(state)
        stored = self.server.hget(self.key("messages"), field)
        attempts = (int.from_bytes(stored[6:8]) + 1).to_bytes(2)
        self.server.hset(self.key("messages"), field, stored[:6] + attempts + stored[8:])

    def findings(self, passes: int = 1) -> list[str]:
        return self.tw._run(audit(self.tw._context, passes=passes))


@pytest.fixture
def patient(tickwheel_server: PrivateServer, server: "redis.Redis") -> Iterator[Patient]:
    with sandbox(tickwheel_server) as (tw, clock):
        populate(tw, clock)
        yield Patient(tw, server)


def populate(tw: Tickwheel, clock: VirtualClock) -> None:
    """Create messages in every state, in a plain and an exclusive queue, with timers in the inbox and on the wheel."""
    plain = tw.create_queue("plain", forecast=True, max_attempts=1)
    exclusive = tw.create_queue("exclusive", exclusive_key="of")
    for queue in (plain, exclusive):
        queue.enqueue_many(
            NewMessage(b"x" * (n * 200), id=f"m{n}", metadata={"of": str(n % 4), "kind": "a"}) for n in range(12)
        )
        first, second, third = queue.dequeue(limit=3)
        first.complete()
        second.fail("no good")
        queue.cancel(third.id, "2" if queue is exclusive else None)
        queue.dequeue()
        queue.enqueue(id="far", delay=timedelta(days=30), metadata={"of": "far"})
        queue.enqueue(id="near", delay=timedelta(seconds=20), metadata={"of": "near"})
        clock.advance(timedelta(seconds=10))
    exclusive.dequeue(where={"of": "0"})
    exclusive.enqueue(id="behind", metadata={"of": "0", "kind": "b"})


HARM: dict[str, tuple[Callable[[Patient], object], str]] = {
    "a foreign key": (lambda p: p.server.set(p.key("x"), 1), "Tickwheel writes no key of this name"),
    "a key of an unknown shard": (lambda p: p.server.set(p.key("clock").replace("{0}", "{7}"), 1), "writes no key of"),
    "a key of an unknown queue": (lambda p: p.server.hset(p.key("q:none:counts"), 1, 1), "writes no key of"),
    "a key of another type": (
        lambda p: (p.server.delete(p.key("slots")), p.server.set(p.key("slots"), 1)),
        "its type is string, not zset",
    ),
    "a key that expires": (lambda p: p.server.expire(p.key("messages"), 100), "it has an expiry"),
    "a session without an expiry": (lambda p: p.server.set(p.key("session:x"), 1), "it has no expiry"),
    "a field of the clock": (lambda p: p.server.hset(p.key("clock"), "x", 1), "unknown fields"),
    "a sequence set back": (lambda p: p.server.hset(p.key("clock"), "seq", 1), "its field 'seq' is"),
    "a count": (lambda p: p.server.hincrby(p.key("q:plain:counts"), 2, 1), "counts of state 2"),
    "a count of a state that has none": (
        lambda p: p.server.hset(p.key("q:exclusive:counts"), 6, 1),
        "counts of state 6",
    ),
    "a minute of the forecast": (lambda p: p.server.hincrby(p.key("q:plain:forecast"), 5, 1), "forecast"),
    "a body without a message": (lambda p: p.server.hset(p.key("bodies"), b"\0\1x", b""), "bodies"),
    "a missing body": (lambda p: p.server.hdel(p.key("bodies"), p.field("bodies")), "body: it is missing"),
    "a missing message": (lambda p: p.server.hdel(p.key("messages"), p.record(b"\x02")), "its message does not exist"),
    "a record cut short": (
        lambda p: p.server.hset(p.key("messages"), p.record(b"\x02"), b"\x02\x00"),
        "cannot be read",
    ),
    "a record of an unknown queue": (lambda p: p.server.hset(p.key("messages"), b"\x09\x09x", b"x"), "does not exist"),
    "the attempts of a finished message": (lambda p: p.add_attempt(b"\x04"), "COMPLETED: 4>, 1), but the record has"),
    "the attempts of a running message": (lambda p: p.add_attempt(b"\x03"), "RUNNING: 3>, 1), but the record has"),
    "ready without a message": (
        lambda p: p.server.zadd(p.key("q:plain:ready"), {b"\0\0\0\0\0\1\0\1x": 1}),
        "its message does not exist",
    ),
    "a missing entry of ready": (lambda p: p.server.zpopmin(p.key("q:plain:ready")), "ready: its score is None"),
    "ready at another score": (
        lambda p: p.server.zincrby(p.key("q:plain:ready"), 1, p.member("q:plain:ready")),
        "score",
    ),
    "a missing head": (lambda p: p.server.zpopmin(p.key("q:exclusive:ready")), "ready: its score is None"),
    "a missing pair": (lambda p: p.server.zpopmin(p.key("q:plain:pairs")), "pairs b"),
    "a pair without a message": (
        lambda p: p.server.zadd(p.key("q:plain:pairs"), {b"\0\3\1ab" + bytes(22) + b"x": 0}),
        "pairs entry",
    ),
    "a missing head of a group": (lambda p: p.server.zpopmin(p.key("q:exclusive:pairs")), "pairs b"),
    "a missing pair of a value": (lambda p: p.server.zpopmin(p.key("q:exclusive:vpairs")), "vpairs b"),
    "a missing waiting message": (lambda p: p.server.zpopmin(p.key("q:exclusive:waiting")), "waiting: it is missing"),
    "waiting in a plain queue": (
        lambda p: p.server.zadd(p.key("q:plain:waiting"), {b"x": 0}),
        "this queue must not have it",
    ),
    "a missing lock": (lambda p: p.server.hdel(p.key("q:exclusive:locks"), b"0"), "lock"),
    "a lock without a holder": (
        lambda p: p.server.hset(p.key("q:exclusive:locks"), b"x", b"Rm1"),
        "lock of b'x': the lock b'Rm1' names message b'm1' as the holder of the value, but this message does not exist",
    ),
    "a group parked for nothing": (
        lambda p: p.server.zadd(p.key("q:exclusive:parked"), {b"\0\1x\0\3\1ab": 0}),
        "no message holds its exclusive value",
    ),
    "a missing inbox": (lambda p: p.server.delete(p.key("inbox")), "timer for it at or before its time"),
    "a missing slot": (
        lambda p: [p.server.delete(key) for key in p.server.scan_iter(match=p.key("w[3-5]:*"))],
        "listed in slots, but its list is empty",
    ),
    "a slot that is not listed": (lambda p: p.server.zpopmax(p.key("slots")), "slots does not list it"),
    "a slot of another start": (
        lambda p: p.server.zincrby(p.key("slots"), 1, p.member("slots")),
        "its start in slots is",
    ),
    "an event twice": (
        lambda p: p.server.xadd(p.key("events"), p.server.xrevrange(p.key("events"), count=1)[0][1]),
        "it does not follow",
    ),
    "an infinite score": (
        lambda p: p.server.zadd(p.key("q:exclusive:ready"), {p.member("q:exclusive:ready"): float("inf")}),
        "score",
    ),
    "a shard of a key beyond number": (
        lambda p: p.server.set(f"{p.tw._context.namespace}:{{{'9' * 5_000}}}:clock", "x"),
        ":clock: Tickwheel writes no key of this name",
    ),
    "an invalid slot name": (lambda p: p.server.zadd(p.key("slots"), {"7:1": 1}), "b'7:1' of slots is not LEVEL"),
    "a fence": (lambda p: p.server.hset(p.key("clock"), "fence", b"zz"), "clock, fence: it is b'zz', not 16 bytes"),
    "a mark of the clock": (lambda p: p.server.hset(p.key("clock"), "high", "abc"), "clock, high: it is b'abc'"),
    "a lateness": (lambda p: p.server.hset(p.key("q:plain:lateness"), "late:3", "x"), "late:3': it is b'x', not a"),
    "a bucket of lateness": (lambda p: p.server.hset(p.key("q:plain:lateness"), "late:x", 1), "lateness b'late:x'"),
    "a copy of a configuration ahead of the metadata shard": (
        lambda p: p.server.hset(p.key("q:plain:config"), "version", b"\0\0\0\7" + bytes(4)),
        "the metadata shard has version 1",
    ),
}


def test_a_sound_namespace_has_no_findings(patient: Patient) -> None:
    assert patient.findings() == []


@pytest.mark.parametrize("harm", HARM)
def test_the_audit_finds_each_kind_of_damage(patient: Patient, harm: str) -> None:
    do_harm, text = HARM[harm]
    do_harm(patient)
    assert any(text in finding for finding in patient.findings()), patient.findings()


def damage(patient: Patient, name: str, junk: bytes) -> None:
    """Write bytes that no version writes to a key of any type."""
    server = patient.server
    key = next(iter(server.scan_iter(match=patient.key(name))))
    match server.type(key):
        case b"hash":
            server.hset(key, min(server.hkeys(key)), junk)
        case b"zset":
            server.zadd(key, {junk: 1})
        case b"stream":
            server.xadd(key, {next(iter(server.xrevrange(key, count=1)[0][1])): junk})
        case b"list":
            server.rpush(key, server.lindex(key, 0) + junk)


@pytest.mark.parametrize("junk", [b"\xff", b"\3" + b"\xfe" * 30], ids=["a byte", "many bytes"])
@pytest.mark.parametrize(
    "name",
    [
        *("messages", "inbox", "events", "slots", "w[2-5]:*", "queues"),
        *(f"q:plain:{kind}" for kind in ("counts", "forecast", "ready", "pairs", "config")),
        *(f"q:exclusive:{kind}" for kind in ("ready", "waiting", "locks", "pairs", "vpairs", "parked")),
    ],
)
def test_damage_is_a_finding_and_not_an_exception(patient: Patient, name: str, junk: bytes) -> None:
    damage(patient, name, junk)
    assert patient.findings()


def test_a_truncated_event_is_named(patient: Patient) -> None:
    [(_, fields)] = patient.server.xrevrange(patient.key("events"), count=1)
    for length in range(len(fields[b"e"])):
        with pytest.raises(ValueError, match="event"):
            decode(fields[b"e"][:length])
    entry_id = patient.server.xadd(patient.key("events"), {b"e": fields[b"e"][:20]})
    assert any(f"event {entry_id.decode()}" in finding and "cut short" in finding for finding in patient.findings())


@pytest.mark.parametrize(
    "harm",
    [
        *("a missing entry of ready", "a pair without a message", "a lock without a holder"),
        *("a group parked for nothing", "a count", "a minute of the forecast", "a body without a message"),
    ],
)
def test_the_passes_for_live_systems_find_damage(patient: Patient, harm: str) -> None:
    HARM[harm][0](patient)
    assert len(patient.findings(passes=LIVE_PASSES)) == 1


def work(tw: Tickwheel, started: threading.Event, stop: threading.Event) -> None:
    """Move messages through all states until `stop` is set."""
    queues = [tw.create_queue("plain", forecast=True), tw.create_queue("exclusive", exclusive_key="of")]
    started.set()
    for round_ in itertools.count():
        # The pause keeps the namespace from growing faster than the audit reads it.
        if stop.wait(0.02):
            return
        for queue in queues:
            delays = itertools.cycle([None, timedelta(milliseconds=30), timedelta(seconds=1), timedelta(hours=1)])
            queue.enqueue_many(
                NewMessage(bytes(n * 100), id=f"{round_}.{n}", metadata={"of": str(n % 5)}, delay=delay)
                for n, delay in zip(range(20), delays, strict=False)
            )
            for n, message in enumerate(queue.dequeue(limit=10, where={"of": "1"} if round_ % 2 else None)):
                if n % 4 == 0:
                    message.fail(retry_in=timedelta(milliseconds=20))
                elif n % 4 == 1:
                    queue.cancel(message.id, message.exclusive_value)
                else:
                    message.complete()


def test_a_system_under_load_has_no_findings(tickwheel_server: PrivateServer) -> None:
    stop, started, until = threading.Event(), threading.Event(), time.monotonic() + 30
    with Tickwheel(tickwheel_server.url, namespace="busy", shards=2, drive=True) as tw, ThreadPoolExecutor() as threads:
        worker = threads.submit(work, tw, started, stop)
        try:
            assert started.wait(30)
            while tw.queue("plain").counts()["completed"] < 100:
                assert time.monotonic() < until
            findings = [tw._run(audit(tw._context, passes=LIVE_PASSES)) for _ in range(5)]
        finally:
            stop.set()
        worker.result()
    assert findings == [[]] * 5
    tickwheel_server.clear("busy")


def test_the_audit_changes_nothing(patient: Patient, contents: Callable[[str], dict[str, Any]]) -> None:
    before = contents(patient.tw._context.namespace)
    patient.findings()
    assert contents(patient.tw._context.namespace) == before
