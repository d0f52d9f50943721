"""A timer as bytes: "check this message at this time". The function `pack_mark` of `lua/_transition.lua` packs the same
bytes.

    time     6 bytes, ms since 1970
    gen      4 bytes, the generation: the lowest 16 bits of the message's incarnation, then of its version, when the
             timer was made
    kind     2 bits (promote, expire, retire), then 14 bits: the total length of queue and name
    queue    2 bytes, the queue's number
    name     identifies the message within its queue (`storage/record.py`)

A timer stays until it fires. If its generation then differs from the generation that its message accepts, the timer is
stale and is ignored.

Packed timers need about a sixth of the memory of tuples. In return, the driver parses a timer again at each stage: when
the driver reads the timer from the inbox, files it, loads it from its slot, and fires it.
"""

from collections.abc import Iterator
from enum import IntEnum
from itertools import islice
from struct import Struct, error as StructError
from typing import Final, NamedTuple

_HEAD = Struct(">HIIHH")
HEAD_BYTES = _HEAD.size
_TIME_BYTES = 6
_GENERATION = Struct(">IH")
# Limits of one entry of an inbox. A script adds one timer for each message of its call. In all versions, a call has at
# most 1,000 messages, and a timer at most 402 bytes, so an entry has at most 402 KB. Twice this number of timers in one
# call of `file_timers.lua` would be too many for the Lua stack of the server, which holds 8,000 values.
ENTRY_TIMERS: Final = 4_000
ENTRY_BYTES: Final = 1024 * 1024


class Kind(IntEnum):
    """The script that checks the message when the timer fires."""

    PROMOTE = 0
    EXPIRE = 1
    RETIRE = 2


class CorruptTimers(ValueError):
    """The bytes are not a sequence of timers, or have too many. No script and no event process writes such bytes."""


class Timer(NamedTuple):
    """One decoded timer."""

    time_ms: int
    queue_number: int
    generation: int
    kind: Kind
    name: bytes


def generation(incarnation: int, version: int) -> int:
    """Return the generation of the timer that a message of this incarnation and version accepts."""
    return (incarnation & 0xFFFF) << 16 | (version & 0xFFFF)


def pack(timer: Timer) -> bytes:
    """Return the timer as bytes: the inverse of `unpack`, for one timer."""
    high, low = divmod(timer.time_ms, 2**32)
    kind = timer.kind << 14 | len(timer.name) + 2
    return _HEAD.pack(high, low, timer.generation, kind, timer.queue_number) + timer.name


def lease_key(lease_timer: bytes) -> bytes:
    """Return the key of the lease that a packed timer ends: generation, kind, queue and name, without the time."""
    return lease_timer[_TIME_BYTES:]


def superseded_lease_key(retention_timer: bytes) -> bytes:
    """Return the key (see `lease_key`) of the lease that ended when the message was finished.

    ``retention_timer`` is the packed timer that the message received then. The version of the lease is one less than
    the version of this timer.
    """
    generation, kind = _GENERATION.unpack_from(retention_timer, _TIME_BYTES)
    before = generation & ~0xFFFF | (generation - 1) & 0xFFFF
    length = kind & 0x3FFF
    return _GENERATION.pack(before, Kind.EXPIRE << 14 | length) + retention_timer[_TIME_BYTES + _GENERATION.size :]


def iter_timers(chunk: bytes) -> Iterator[tuple[int, int, Kind, bytes]]:
    """Yield (time_ms, queue number, kind, packed timer) for every timer of a packed chunk.

    Raises CorruptTimers at the first bytes that are not a timer.
    """
    position, end = 0, len(chunk)
    try:
        while position < end:
            high, low, _, kind, queue_number = _HEAD.unpack_from(chunk, position)
            length = kind & 0x3FFF
            after = position + HEAD_BYTES - 2 + length
            if after > end or length < 2:
                raise ValueError(f"{length} is not the length of its queue and name")
            yield high << 32 | low, queue_number, Kind(kind >> 14), chunk[position:after]
            position = after
    except (StructError, ValueError) as error:
        raise CorruptTimers(f"no timer at byte {position} of {end}: {error}") from error


def parse_entry(entry: bytes) -> list[tuple[int, int, Kind, bytes]]:
    """Return the timers of one entry of an inbox, as `iter_timers` yields them.

    Raises CorruptTimers if the bytes are not timers, or if the entry is larger than any entry that a script adds. An
    entry above ENTRY_BYTES is not parsed, and another one only up to ENTRY_TIMERS.
    """
    if len(entry) > ENTRY_BYTES:
        raise CorruptTimers(f"the entry has {len(entry)} bytes, and the maximum is {ENTRY_BYTES}")
    timers = list(islice(iter_timers(entry), ENTRY_TIMERS + 1))
    if len(timers) > ENTRY_TIMERS:
        raise CorruptTimers(f"the entry has more than {ENTRY_TIMERS} timers")
    return timers


def unpack(chunk: bytes) -> list[Timer]:
    """Return every timer of a packed chunk."""
    return [
        Timer(time_ms, queue_number, _GENERATION.unpack_from(timer, _TIME_BYTES)[0], kind, timer[HEAD_BYTES:])
        for time_ms, queue_number, kind, timer in iter_timers(chunk)
    ]
