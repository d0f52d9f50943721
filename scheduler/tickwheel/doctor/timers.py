"""Checks the wheel: every message that waits for a time has its timer in the inbox or in the slot of that time.

The wheel is read before the messages. It is read in the direction in which timers move, from the inbox to the lowest
level, so that no timer moves from an unread place to a place that has been read.
"""

import re
from collections.abc import Iterable

from tickwheel.doctor.shard_reader import PAGE, ShardReader
from tickwheel.plan import Plan, pairs_from_flat
from tickwheel.storage.timer import Kind, Timer, parse_entry, unpack
from tickwheel.storage.wheel_levels import HIGHEST, LOWEST, number, parse, start

# Elements of a slot's list in one page. Each element holds up to a few hundred timers.
_CHUNKS = 50
_SLOT = re.compile(rf"[{LOWEST}-{HIGHEST}]:[0-9]{{1,18}}".encode())
# Number of bytes of unreadable timers that a finding has.
_SHOWN_BYTES = 200


class TimerBloomFilter:
    """The set of timers that were read: a Bloom filter (Bloom, 1970) of at least 16 bits for each expected timer.

    The check overlooks at most about 1 of 1,700 missing timers. With fewer than about 10,000 timers, the check is
    practically exact.
    """

    def __init__(self, expected: int) -> None:
        self._bits = bytearray(max(1 << 18, 2 * expected))

    def add(self, queue_number: int, name: bytes, kind: Kind, generation: int) -> None:
        for byte, bit in self._bit_positions(queue_number, name, kind, generation):
            self._bits[byte] |= bit

    def has(self, queue_number: int, name: bytes, kind: Kind, generation: int) -> bool:
        return all(self._bits[byte] & bit for byte, bit in self._bit_positions(queue_number, name, kind, generation))

    def _bit_positions(self, *timer: int | bytes) -> Iterable[tuple[int, int]]:
        # Derives eight positions from two hashes (Kirsch and Mitzenmacher, 2006).
        first, second, size = hash(timer), hash((timer, 1)) | 1, 8 * len(self._bits)
        for n in range(8):
            byte, bit = divmod((first + n * second) % size, 8)
            yield byte, 1 << bit


def check_wheel(shard: ShardReader) -> Plan[TimerBloomFilter]:
    """Check the wheel of the shard, and return the timers that messages wait for."""
    seen = TimerBloomFilter((yield from shard.execute([("HLEN", shard.key("messages"))]))[0])
    yield from _read_inbox(shard, seen)
    slots = yield from _read_slots(shard)
    for level in range(HIGHEST, LOWEST - 1, -1):
        for slot_number in sorted(number_in_level for slot_level, number_in_level in slots if slot_level == level):
            yield from _read_slot(shard, level, slot_number, seen)
    yield from _check_reachable(shard)
    return seen


def _read_inbox(shard: ShardReader, seen: TimerBloomFilter) -> Plan[None]:
    after = b"-"
    while True:
        entries = (yield from shard.execute([("XRANGE", shard.key("inbox"), after, "+", "COUNT", PAGE)]))[0]
        for entry_id, fields in entries:
            if fields[::2] != [b"t"]:
                shard.add_finding("inbox", f"entry {entry_id.decode()} has fields {fields[::2]}")
                continue
            yield from _check_timers(shard, f"inbox entry {entry_id.decode()}", fields[1], seen)
        if len(entries) < PAGE:
            return
        after = b"(" + entries[-1][0]


def _read_slots(shard: ShardReader) -> Plan[list[tuple[int, int]]]:
    slots: list[tuple[int, int]] = []
    first = 0
    while True:
        command = ("ZRANGE", shard.key("slots"), first, first + PAGE - 1, "WITHSCORES")
        flat = (yield from shard.execute([command]))[0]
        for member, score in pairs_from_flat(flat):
            try:
                slot = slot_of(member)
            except ValueError as error:
                shard.add_finding("slots", str(error))
                continue
            slots.append(slot)
            if float(score) != start(*slot):
                shard.add_finding(f"slot {member.decode()}", f"its start in slots is {score!r}, not {start(*slot)}")
        if len(flat) < 2 * PAGE:
            return slots
        first += PAGE


def slot_of(member: bytes) -> tuple[int, int]:
    """Return the level and number of a member of `slots`. Raises ValueError if event processes write no such member."""
    if not _SLOT.fullmatch(member):
        raise ValueError(f"the member {member!r} of slots is not LEVEL:NUMBER")
    return parse(member)


def _read_slot(shard: ShardReader, level: int, slot_number: int, seen: TimerBloomFilter) -> Plan[None]:
    key, first, where = shard.slot_key(level, slot_number), 0, f"slot {level}:{slot_number}"
    while True:
        chunks = (yield from shard.execute([("LRANGE", key, first, first + _CHUNKS - 1)]))[0]
        for chunk in chunks:
            yield from _check_timers(shard, where, chunk, seen, (level, slot_number))
        first += len(chunks)
        if len(chunks) < _CHUNKS:
            break
    if first == 0:
        shard.add_finding(where, "it is listed in slots, but its list is empty")


def _check_timers(
    shard: ShardReader, where: str, packed: bytes, seen: TimerBloomFilter, slot: tuple[int, int] | None = None
) -> Plan[None]:
    try:
        if slot is None:
            # The event process skips entries of the inbox that are too large.
            parse_entry(packed)
        timers = unpack(packed)
    except Exception as error:
        shard.add_finding(where, f"its timers cannot be read ({error!r}): {packed[:_SHOWN_BYTES].hex()}")
        return
    fields = [timer.queue_number.to_bytes(2, "big") + timer.name for timer in timers]
    records = yield from shard.records(fields)
    for timer, field in zip(timers, fields, strict=True):
        if slot is not None and number(slot[0], timer.time_ms) != slot[1]:
            shard.add_finding(where, f"it has a timer for {timer.time_ms}, which belongs in another slot")
        elif timer.queue_number not in shard.queues:
            shard.add_finding(where, f"it has a timer of queue {timer.queue_number}, which does not exist")
        elif _is_awaited(shard, timer, field, records[field]):
            seen.add(timer.queue_number, timer.name, timer.kind, timer.generation)


def _is_awaited(shard: ShardReader, timer: Timer, field: bytes, stored: bytes | None) -> bool:
    """Return whether the message of the timer waits for the timer.

    A timer that is earlier than the time of the message counts: if a timer fires too early, it is set again. A later
    timer does not count.
    """
    if stored is None:
        return False
    try:
        message = shard.expected_entries(field, stored)
    except ValueError:
        # `check_messages` reports the unreadable record.
        return False
    return message.timer() == (timer.kind, timer.generation) and timer.time_ms <= message.record.until_ms


def _check_reachable(shard: ShardReader) -> Plan[None]:
    """Check that `slots` lists every slot with timers. The event process would never read a slot that is not listed.

    If the user may not run SCAN, check nothing. `check_messages` then reports each message whose timer is only in such
    a slot, because the slot was not read.
    """
    if not shard.may_scan:
        return
    cursor = b"0"
    prefix = shard.key("w")
    while True:
        command = ("SCAN", cursor, "MATCH", prefix + "[2-5]:*", "COUNT", PAGE)
        cursor, page = (yield from shard.execute([command]))[0]
        names = [raw.decode()[len(prefix) :] for raw in page]
        scores = yield from shard.execute(("ZSCORE", shard.key("slots"), name) for name in names)
        for name, score in zip(names, scores, strict=True):
            if score is None:
                shard.add_finding(f"slot {name}", "it has timers, but slots does not list it")
        if cursor == b"0":
            return
