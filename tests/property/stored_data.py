"""The data that the server must hold for a model, key by key, and the data that it holds, with history and timers."""

from collections.abc import Iterable
from struct import Struct
from typing import Any

from tests.property.model import QueueModel
from tests.property.model_messages import CANCELLED, COMPLETED, ERRORED, INVISIBLE, PENDING, RUNNING, Entry, Event
from tests.support.outbox import read_outbox
from tickwheel.storage import keys, record, timer as timers
from tickwheel.storage.record import BIAS, State
from tickwheel.storage.transition import OutboxTransition

_ORDER = Struct(">QHI")
_RANK = Struct(">HI")
Contents = dict[str, object]
# Commands that read one queue on one shard.
_READS = 10


def expected(queue: QueueModel, number: int, shard: int) -> Contents:
    """Return the expected messages and indexes of one queue on one shard."""
    here = [entry for entry in queue.messages.values() if entry.shard == shard]
    prefix = number.to_bytes(2, "big")
    pending = sorted((entry for entry in here if entry.state == PENDING), key=lambda entry: entry.urgency)
    contents: Contents = {
        "messages": {_name(entry): _message_contents(entry) for entry in here},
        "counts": {state: count for state, count in queue.counts(shard).items() if count},
        "errored": _times_errored(queue, shard),
    }
    if queue.settings.exclusive_key is None:
        contents["ready"] = {_rank(entry) + prefix + _name(entry): _deadline(entry) for entry in pending}
        contents["pairs"] = {pair + _order(entry) + _signature(queue, entry) + _name(entry)
                          for entry in pending for pair in _pairs(queue, entry)}  # fmt: skip
        return contents | {"waiting": set(), "locks": {}, "vpairs": set()}
    heads: dict[str | None, Entry] = {}
    for entry in pending:
        if not queue.is_held(entry.value):
            heads.setdefault(entry.value, entry)
    holders = {entry.value: entry for entry in here if entry.state == RUNNING or entry.held}
    locks = {_value(entry): b"H" + _order(entry) + _id(entry) for entry in heads.values()}
    locks |= {_value(entry): b"R" + _id(entry) for entry in holders.values()}
    contents["locks"] = locks
    contents["ready"] = {_rank(entry) + prefix + _name(entry): _deadline(entry) for entry in heads.values()}
    contents["waiting"] = {
        _prefix(entry) + _order(entry) + _id(entry) for entry in pending if entry not in heads.values()
    }
    contents["vpairs"] = {_prefix(entry) + pair + _order(entry) + _signature(queue, entry) + _id(entry)
                       for entry in pending for pair in _pairs(queue, entry)}  # fmt: skip
    return contents


def _times_errored(queue: QueueModel, shard: int) -> int:
    """Return how many messages have become Errored since the queue was created."""
    here = [entry for entry in queue.everything() if entry.shard == shard]
    return sum(event.after == ERRORED for entry in here for event in entry.history)


def group_heads(queue: QueueModel, shard: int) -> dict[bytes, bytes]:
    """Return the most urgent entry of each (value, pair) group, by the key of the group.

    The index `pairs` has these entries. Groups of a leased value may be parked: then `pairs` lacks their entry.
    """
    heads: dict[bytes, bytes] = {}
    for entry in queue.pending(shard, {}):
        for pair in _pairs(queue, entry):
            head = pair + _order(entry) + _signature(queue, entry) + _name(entry)
            heads.setdefault(_prefix(entry) + pair, head)
    return heads


def held_prefixes(queue: QueueModel) -> tuple[bytes, ...]:
    """Return the key prefixes of each exclusive value that is held."""
    return tuple({_prefix(entry) for entry in queue.messages.values() if entry.state == RUNNING or entry.held})


class Stored:
    """Reads the stored data of a namespace."""

    def __init__(self, client: Any, namespace: str) -> None:
        """``client`` is a redis-py client that returns bytes."""
        self._client = client
        self._namespace = namespace
        self._relayed: list[OutboxTransition] = []

    def read(self, places: Iterable[tuple[str, int]]) -> list[list[Any]]:
        """Read the data of each (queue, shard) for `contents`, in one round trip."""
        with self._client.pipeline(transaction=False) as pipeline:
            for queue, shard in places:
                named = {name: keys.queue_key(self._namespace, shard, queue, name) for name in keys.QUEUE_KEYS}
                pipeline.hgetall(keys.shard_key(self._namespace, shard, "messages"))
                pipeline.hgetall(keys.shard_key(self._namespace, shard, "bodies"))
                pipeline.hgetall(named["counts"])
                pipeline.hget(named["config"], "errored")
                pipeline.hgetall(named["locks"])
                pipeline.zrange(named["ready"], 0, -1, withscores=True)
                for name in ("waiting", "pairs", "vpairs", "parked"):
                    pipeline.zrange(named[name], 0, -1)
            replies = pipeline.execute()
        return [replies[first : first + _READS] for first in range(0, len(replies), _READS)]

    def contents(self, replies: list[Any], number: int, exclusive: bool) -> tuple[Contents, set[bytes]]:
        """Return the stored data in the form of `expected` for the same queue and shard, and the parked groups."""
        messages, bodies, counts, errored, locks, ready, waiting, pairs, vpairs, parked = replies
        prefix = number.to_bytes(2, "big")
        records = {
            field[2:]: record.decode(stored, bodies.get(record.body_field(field, stored), b""))
            for field, stored in messages.items()
            if field.startswith(prefix)
        }
        large = {prefix + name + stored.digest for name, stored in records.items() if stored.flags & record.BODY}
        assert {field for field in bodies if field.startswith(prefix)} == large, "bodies without a message"
        contents: Contents = {
            "messages": {name: _seen(stored) for name, stored in records.items()},
            "counts": {State(int(state)).label: int(count) for state, count in counts.items() if int(count)},
            "errored": int(errored or 0),
            "locks": locks,
            "ready": {member: int(score) for member, score in ready},
            "waiting": set(waiting),
            "vpairs": set(vpairs),
        }
        if not exclusive:
            assert not parked
            return contents | {"pairs": set(pairs)}, set()
        self.pairs = set(pairs)
        return contents, set(parked)

    def relay(self, shards: int) -> None:
        """Take all transitions out of the outbox, as the relay does. The history still contains them."""
        self._relayed += read_outbox(self._client, self._namespace, shards)
        for shard in range(shards):
            self._client.xtrim(keys.shard_key(self._namespace, shard, "events"), maxlen=0, approximate=False)
            self._client.hset(keys.shard_key(self._namespace, shard, "clock"), "outbox", 0)

    def history(self, shards: int) -> dict[tuple[int, str, str | None, int], list[Event]]:
        """Return the transitions of each message in the outbox, by (queue number, id, value, incarnation)."""
        history: dict[tuple[int, str, str | None, int], list[Event]] = {}
        for transition in self._relayed + read_outbox(self._client, self._namespace, shards):
            event = Event(
                *(
                    transition.version,
                    _label(transition.from_state),
                    _label(transition.to_state),
                    transition.time_ms,
                    transition.until_ms,
                ),
                *(
                    transition.attempt,
                    transition.lateness_ms,
                    transition.due_ms,
                    transition.deadline_ms,
                    transition.metadata,
                ),
            )
            history.setdefault(
                (transition.queue_number, transition.id, transition.exclusive_value, transition.incarnation), []
            ).append(event)
        return history

    def timers(self, shard: int) -> list[timers.Timer]:
        """Return all timers that outlive every process: the timers of the inbox and of the wheel's slots."""
        chunks = [fields[b"t"] for _, fields in self._client.xrange(keys.shard_key(self._namespace, shard, "inbox"))]
        for slot in self._client.zrange(keys.shard_key(self._namespace, shard, "slots"), 0, -1):
            level, number = map(int, slot.split(b":"))
            chunks += self._client.lrange(keys.slot_key(self._namespace, shard, level, number), 0, -1)
        return [timer for chunk in chunks for timer in timers.unpack(chunk)]

    def names(self) -> set[str]:
        """Return all keys of the server."""
        return {key.decode() for key in self._client.keys("*")}

    def high(self, shard: int) -> int | None:
        """Return the latest time that the clock guard of a shard has recorded."""
        mark = self._client.hget(keys.shard_key(self._namespace, shard, "clock"), "high")
        return None if mark is None else int(mark)


def lost_timers(entries: Iterable[Entry], number: int, stored_timers: list[timers.Timer]) -> list[Entry]:
    """Return the messages that wait for a time without a timer."""
    kinds = {INVISIBLE: timers.Kind.PROMOTE, RUNNING: timers.Kind.EXPIRE}
    times: dict[tuple[int, bytes, int, timers.Kind], int] = {}
    for timer in stored_timers:
        key = (timer.queue_number, timer.name, timer.generation, timer.kind)
        times[key] = min(timer.time_ms, times.get(key, timer.time_ms))
    lost = []
    for entry in entries:
        kind = timers.Kind.EXPIRE if entry.held else kinds.get(entry.state, timers.Kind.RETIRE)
        generation = timers.generation(entry.order, entry.version)
        time = times.get((number, _name(entry), generation, kind))
        if entry.state != PENDING and (time is None or time > entry.until):
            lost.append(entry)
    return lost


def _label(state: State | None) -> str | None:
    return None if state is None else state.label


def _message_contents(entry: Entry) -> tuple[object, ...]:
    owned = entry.token is not None
    text = entry.result if entry.state == COMPLETED else entry.error or None
    return (
        entry.state, entry.version, entry.attempts, entry.order, entry.due, entry.until, _deadline(entry),
        entry.token if owned else b"", entry.worker, text, entry.payload, entry.metadata, entry.held,
    )  # fmt: skip


def _seen(stored: record.Record) -> tuple[object, ...]:
    text = stored.error if stored.flags & record.ERROR else None
    return (
        stored.state.label, stored.version, stored.attempts, stored.incarnation, stored.due_ms, stored.until_ms,
        stored.deadline_ms, stored.token, stored.worker, text, stored.payload, stored.metadata,
        stored.holds_exclusive_value and stored.state.label == CANCELLED,
    )  # fmt: skip


def _id(entry: Entry) -> bytes:
    return entry.key[0].encode()


def _value(entry: Entry) -> bytes:
    return (entry.value or "").encode()


def _prefix(entry: Entry) -> bytes:
    return len(_value(entry)).to_bytes(2, "big") + _value(entry)


def _name(entry: Entry) -> bytes:
    return _id(entry) if entry.value is None else _prefix(entry) + _id(entry)


def _deadline(entry: Entry) -> int:
    return entry.urgency[0]


def _rank_number(entry: Entry) -> int:
    return entry.order + (2**47 if entry.deadline is None else 0)


def _rank(entry: Entry) -> bytes:
    return _RANK.pack(*divmod(_rank_number(entry), 2**32))


def _order(entry: Entry) -> bytes:
    return _ORDER.pack(_deadline(entry) + BIAS, *divmod(_rank_number(entry), 2**32))


def _pairs(queue: QueueModel, entry: Entry) -> list[bytes]:
    return [record.pair(key, value)[0] for key, value in _indexed(queue, entry)]


def _signature(queue: QueueModel, entry: Entry) -> bytes:
    bits = 0
    for key, value in _indexed(queue, entry):
        bits |= record.pair(key, value)[1]
    return bits.to_bytes(8, "big")


def _indexed(queue: QueueModel, entry: Entry) -> list[tuple[str, str]]:
    indexed = queue.settings.indexed
    return [
        (key, value)
        for key, value in entry.metadata.items()
        if key not in ("traceparent", "tracestate") and (indexed is None or key in indexed)
    ]
