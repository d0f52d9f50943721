"""The outbox: every transition of a shard, in order, as the scripts write it (`lua/_transition.lua`).

An entry of the stream `events` records one script call. The letters below are formats of Lua's `struct.pack`: `B` is
one byte, `I6` a big-endian number of 6 bytes, and `c0` a string whose length is the number before it. The field `e` of
an entry contains

    format B (3 plain, 4 exclusive queue), time I6, queue number I2, worker Bc0
    then for each transition
        mark     the bytes of the timer (`timer.py`) that the message waits for in its new state, if it waits for one:
                 time of the timer I6, lowest 16 bits of incarnation and version I2 I2, kind and length of the rest I2,
                 queue number and name
        tail     the other bits of incarnation I4 and version I2, attempt I2, parts B: in bits 0-2 the new state, in
                 bits 3-5 the old state (0: the message does not exist), and the flags 64 and 128
        64       due I6, deadline I8 + 2^52 and pairs I2c0 follow. Without this flag, a new message has `until` as its
                 due time and deadline, and no pairs
        128      lateness in ms I6 follows

(queue, name, incarnation, version) identifies one transition permanently.
"""

from dataclasses import dataclass
from struct import Struct, error as StructError
from typing import Final

from tickwheel.storage.record import BIAS, State, decode_pairs, split_name

_ENTRY = Struct(">BHIHB")
_MARK = Struct(">HIHHHH")
_TAIL = Struct(">IHHB")
_DETAIL = Struct(">HIQH")
_TIME_BYTES = 6
_DETAILED, _LATE = 64, 128
_NUMBER = slice(7, 9)
_PLAIN, _EXCLUSIVE = 3, 4
# Limits of one entry. A call of any version changes at most 1,000 messages, each at most twice. Its largest entry is
# that of 1,000 new messages, whose metadata has the 4 MiB that an early version could send in one call.
ENTRY_TRANSITIONS: Final = 4_000
ENTRY_BYTES: Final = 8 * 1024 * 1024
# Later formats have numbers below this one.
_FORMATS_END = 32


@dataclass(frozen=True, slots=True)
class OutboxTransition:
    """One change of state. ``from_state`` is None for a new message, ``to_state`` is None for a deleted message."""

    queue_number: int
    id: str
    exclusive_value: str | None
    incarnation: int
    version: int
    from_state: State | None
    to_state: State | None
    time_ms: int
    until_ms: int
    attempt: int
    worker: str = ""
    lateness_ms: int | None = None
    due_ms: int | None = None
    deadline_ms: int | None = None
    metadata: dict[str, str] | None = None


class UnknownFormat(ValueError):
    """The entry may have been written by a later version of Tickwheel."""


def decode(entry: bytes) -> list[OutboxTransition]:
    """Return the transitions in ``entry``, the field `e` of one entry.

    Raises UnknownFormat if the field may have the format of a later version. Raises ValueError if the field is damaged,
    or is larger than any field that a script adds: a field above ENTRY_BYTES is not parsed.
    """
    if entry[:1] not in (bytes([_PLAIN]), bytes([_EXCLUSIVE])):
        is_later = entry and _EXCLUSIVE < entry[0] < _FORMATS_END
        raise (UnknownFormat if is_later else ValueError)(
            f"the event has an unknown format; this version reads formats {_PLAIN} and {_EXCLUSIVE}: {entry[:16]!r}"
        )
    if len(entry) > ENTRY_BYTES:
        raise ValueError(f"the event has {len(entry)} bytes, and the maximum is {ENTRY_BYTES}")
    try:
        return _decode(entry)
    except (StructError, IndexError) as error:
        raise ValueError(f"the event is cut short: {len(entry)} bytes") from error


def queue_number_of(entry: bytes) -> int:
    """Return the number of the queue whose transitions ``entry`` contains, without decoding the transitions."""
    return int.from_bytes(entry[_NUMBER])


def _decode(entry: bytes) -> list[OutboxTransition]:
    kind, high, low, number, length = _ENTRY.unpack_from(entry)
    at = _ENTRY.size + length
    worker = entry[_ENTRY.size : at].decode()
    time_ms = high << 32 | low
    decoded: list[OutboxTransition] = []
    while at < len(entry):
        if len(decoded) >= ENTRY_TRANSITIONS:
            raise ValueError(f"the event has more than {ENTRY_TRANSITIONS} transitions")
        u1, u2, incarnation, version, length, _ = _MARK.unpack_from(entry, at)
        end = at + _MARK.size - 2 + (length & 0x3FFF)
        id_, value = split_name(entry[at + _MARK.size : end], kind == _EXCLUSIVE)
        incarnation_high, version_high, attempt, parts = _TAIL.unpack_from(entry, end)
        at = end + _TAIL.size
        until = u1 << 32 | u2
        before, after = parts >> 3 & 7, parts & 7
        due = deadline = late = metadata = None
        if not before:
            due, deadline, metadata = until, until, {}
        if parts & _DETAILED:
            d1, d2, biased, length = _DETAIL.unpack_from(entry, at)
            at += _DETAIL.size
            due, deadline = d1 << 32 | d2, biased - BIAS
            metadata = decode_pairs(entry[at : at + length])
            at += length
        if parts & _LATE:
            late = int.from_bytes(entry[at : at + _TIME_BYTES])
            at += _TIME_BYTES
        decoded.append(
            OutboxTransition(
                number,
                id_,
                value,
                incarnation_high << 16 | incarnation,
                version_high << 16 | version,
                State(before) if before else None,
                State(after) if after else None,
                time_ms,
                until,
                attempt,
                worker,
                late,
                due,
                deadline,
                metadata,
            )
        )
    if not decoded or at > len(entry):
        raise ValueError(f"the event is cut short: {len(entry)} bytes")
    return decoded
