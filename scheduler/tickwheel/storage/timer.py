"""A timer as bytes: 'look at this message then'. The function `mark` of `lua/_transition.lua` packs the same bytes.

    time     6 bytes, ms since 1970
    gen      4 bytes, low halves of the message's incarnation and version when the timer was made
    kind     2 bits (promote, expire, retire), and the length of what follows in 14
    queue    2 bytes, the queue's number
    name     what tells the message within its queue (`storage/record.py`)

A timer whose generation is not its message's is stale and dropped when it fires; a timer is never removed.

The driver parses a timer up to four times: when it reads, holds, files and fires the timer. That is the cost of keeping
timers packed, in about a sixth of the memory of tuples.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

_HEAD = Struct(">HIIHH")
HEAD_BYTES = _HEAD.size
_TIME_BYTES = 6
_GENERATION = Struct(">IH")


class Kind(IntEnum):
    """Which script looks at the message when the timer fires."""

    PROMOTE = 0
    EXPIRE = 1
    RETIRE = 2


class Timer(NamedTuple):
    """One timer, taken apart."""

    time_ms: int
    queue_number: int
    generation: int
    kind: Kind
    name: bytes


def generation(incarnation: int, version: int) -> int:
    """The generation of the timer that a message of this incarnation and version waits for."""
    return (incarnation & 0xFFFF) << 16 | (version & 0xFFFF)


def pack(timer: Timer) -> bytes:
    high, low = divmod(timer.time_ms, 2**32)
    kind = timer.kind << 14 | len(timer.name) + 2
    return _HEAD.pack(high, low, timer.generation, kind, timer.queue_number) + timer.name


def lease_key(lease_timer: bytes) -> bytes:
    """Which lease a packed timer is for, whenever it ends: generation, kind, queue and name."""
    return lease_timer[_TIME_BYTES:]


def superseded_lease_key(retention_timer: bytes) -> bytes:
    """The lease, as `lease_key` returns it, that this packed timer ends: that of the version before its own."""
    generation, kind = _GENERATION.unpack_from(retention_timer, _TIME_BYTES)
    before = generation & ~0xFFFF | (generation - 1) & 0xFFFF
    length = kind & 0x3FFF
    return _GENERATION.pack(before, Kind.EXPIRE << 14 | length) + retention_timer[_TIME_BYTES + _GENERATION.size :]


def iter_timers(chunk: bytes) -> Iterator[tuple[int, int, Kind, bytes]]:
    """Yield (time_ms, queue number, kind, the timer's own bytes) for every timer of a packed chunk."""
    position, end = 0, len(chunk)
    while position < end:
        high, low, _, kind, queue_number = _HEAD.unpack_from(chunk, position)
        after = position + HEAD_BYTES - 2 + (kind & 0x3FFF)
        yield high << 32 | low, queue_number, Kind(kind >> 14), chunk[position:after]
        position = after


def unpack(chunk: bytes) -> list[Timer]:
    """Every timer of a packed chunk."""
    timers = []
    position, end = 0, len(chunk)
    while position < end:
        high, low, gen, kind, queue_number = _HEAD.unpack_from(chunk, position)
        start = position + HEAD_BYTES
        position = start - 2 + (kind & 0x3FFF)
        timers.append(Timer(high << 32 | low, queue_number, gen, Kind(kind >> 14), chunk[start:position]))
    return timers
