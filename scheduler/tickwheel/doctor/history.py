"""The events replay to the states of the records, where all are still there; the outbox is as long as counted."""

from dataclasses import dataclass

from tickwheel.doctor.expected_entries import read
from tickwheel.doctor.shard_reader import PAGE, Shard
from tickwheel.operations.context import RELAYED
from tickwheel.plan import Plan, pairwise
from tickwheel.storage.record import State, name
from tickwheel.storage.transition import Transition, decode

# A history with more transitions than this is not replayed: some hundred bytes of memory each.
REPLAY_MAX = 1_000_000


@dataclass(slots=True)
class _Life:
    """Where the events have brought a message."""

    incarnation: int
    version: int
    state: State | None


def check_history(shard: Shard) -> Plan[None]:
    """Replay the events from the first; nothing where the history is off, has gaps, or its beginning was trimmed."""
    key = shard.key("events")
    if shard.core.history >= RELAYED:
        yield from _check_size(shard, key)
    if not (yield from shard.ask([("EXISTS", key)]))[0]:
        return
    if (yield from shard.ask([("HEXISTS", shard.key("clock"), "dropped")]))[0]:
        return
    about = dict(pairwise((yield from shard.ask([("XINFO", "STREAM", key)]))[0]))
    if shard.core.history == 0:
        shard.find("events", "there are some, and the namespace keeps no history")
    if about[b"entries-added"] != about[b"length"]:
        return
    lives: dict[bytes, _Life] = {}
    after, replayed = b"-", 0
    while True:
        entries = (yield from shard.ask([("XRANGE", key, after, "+", "COUNT", PAGE)]))[0]
        for entry_id, fields in entries:
            try:
                transitions = decode(fields[1])
            except ValueError as error:
                # What follows does not follow without it.
                shard.find(f"event {entry_id.decode()}", str(error))
                return
            replayed += len(transitions)
            for transition in transitions:
                _apply(shard, lives, transition, f"event {entry_id.decode()}")
        if replayed > REPLAY_MAX:
            return
        if len(entries) < PAGE:
            break
        after = b"(" + entries[-1][0]
    yield from _compare(shard, lives)
    there, length = yield from shard.ask([("HLEN", shard.key("messages")), ("XLEN", key)])
    alive = sum(life.state is not None for life in lives.values())
    if length == about[b"length"] and there != alive:
        shard.find("events", f"{alive} messages are alive by them, and {there} are there")


def _check_size(shard: Shard, key: str) -> Plan[None]:
    """The bytes counted against the outbox's limit are those of its entries; not judged where they move meanwhile."""
    counted = [("HGET", shard.key("clock"), "outbox"), ("XINFO", "STREAM", key)]
    if not (yield from shard.ask([("EXISTS", key)]))[0]:
        counted.pop()
    before = yield from shard.ask(counted)
    size, after = 0, b"-"
    while entries := (yield from shard.ask([("XRANGE", key, after, "+", "COUNT", PAGE)]))[0]:
        size += sum(len(fields[1]) for _, fields in entries)
        after = b"(" + entries[-1][0]
    if before == (yield from shard.ask(counted)) and (before[0] or b"0") != b"%d" % size:
        shard.find("clock, outbox", f"it is {before[0]!r}, and the events have {size} bytes")


def _apply(shard: Shard, lives: dict[bytes, _Life], transition: Transition, where: str) -> None:
    value = None if transition.exclusive_value is None else transition.exclusive_value.encode()
    field = transition.queue_number.to_bytes(2, "big") + name(transition.id.encode(), value)
    life = lives.get(field)
    if transition.from_state is None:
        follows = life is None or (life.state is None and transition.incarnation > life.incarnation)
        follows = follows and transition.version == 1
    else:
        follows = life is not None and (life.incarnation, life.version + 1, life.state) == (
            transition.incarnation,
            transition.version,
            transition.from_state,
        )
    if not follows:
        shard.find(where, f"it does not follow from {life}: {transition}")
    lives[field] = _Life(transition.incarnation, transition.version, transition.to_state)


def _compare(shard: Shard, lives: dict[bytes, _Life]) -> Plan[None]:
    fields = list(lives)
    for first in range(0, len(fields), PAGE):
        page = fields[first : first + PAGE]
        for field, stored in (yield from shard.records(page)).items():
            life, queue = lives[field], shard.queues.get(int.from_bytes(field[:2], "big"))
            if queue is None:
                shard.find(f"events of {field!r}", "their queue does not exist")
                continue
            try:
                found = None if stored is None else read(*queue, field[2:], stored).record
            except ValueError:
                # Reported with the message.
                continue
            stands = None if found is None else (found.incarnation, found.version, found.state)
            replayed = None if life.state is None else (life.incarnation, life.version, life.state)
            if stands != replayed:
                shard.find(
                    f"queue {queue[0]}, message {field[2:]!r} version {life.version}, events",
                    f"they end at {replayed}, and the record says {stands}",
                )
