"""The row of a member in an election by lease, in which a process describes itself, as bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct, error as StructError
from typing import Final, Self

from tickwheel import limits

VERSION: Final = 1
# Ranks of members. A member of the last resort gets only the shards that no event process can drive.
EVENT_PROCESS: Final = 0
LAST_RESORT: Final = 1
# Version of the format, rank, lease and beat, size of a bitmap. Three bitmaps and the name follow. Earlier versions of
# Tickwheel write a lease of 0, and read both numbers as one beat, which grows with each row, too.
_HEAD: Final = Struct(">BBQH")
_BEAT_BITS: Final = 48
# The longest session time-out: a longer lease of another program counts as this one.
LEASE_MS_MAX: Final = 60_000
_NAME_BYTES: Final = 300
_BITMAP_BYTES_MAX: Final = -(-limits.SHARDS_MAX // 8)


class NewerRow(ValueError):
    """The row was written by a later version of Tickwheel."""


@dataclass(frozen=True, slots=True)
class Row:
    """The description of a member.

    ``lease_ms`` is the member's lease: it writes a row CALLS_PER_LEASE times in this time. 0 is unknown, in the row of
    an earlier version. ``beat`` is higher in each row that the member writes. ``wants`` are the shards that the member
    waits to drive, ``drives`` those that it drives, and ``avoids`` those that it cannot drive now. ``name`` is for
    display: host:pid.
    """

    rank: int
    beat: int
    wants: frozenset[int]
    drives: frozenset[int]
    avoids: frozenset[int]
    name: str
    lease_ms: int = 0

    def pack(self, shards: int) -> bytes:
        """Return the stored form, for a namespace with this number of shards."""
        size = -(-shards // 8)
        bitmaps = (_bitmap(numbers, size) for numbers in (self.wants, self.drives, self.avoids))
        name = self.name.encode(errors="replace")[:_NAME_BYTES]
        beat = min(self.lease_ms, LEASE_MS_MAX) << _BEAT_BITS | self.beat
        return b"".join((_HEAD.pack(VERSION, self.rank, beat, size), *bitmaps, name))

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Parse a stored row. Raises NewerRow for the row of a later version, and ValueError for other data."""
        if packed and packed[0] > VERSION:
            raise NewerRow(f"version {packed[0]}")
        try:
            version, rank, number, size = _HEAD.unpack_from(packed)
        except StructError as error:
            raise ValueError(f"{len(packed)} bytes are too short for a row") from error
        end = _HEAD.size + 3 * size
        if version != VERSION or size > _BITMAP_BYTES_MAX or len(packed) < end:
            raise ValueError(f"{len(packed)} bytes of version {version} are no row")
        wants, drives, avoids = (
            _numbers(packed[first : first + size]) for first in range(_HEAD.size, end, size)
        ) if size else (frozenset[int](),) * 3  # fmt: skip
        lease_ms, beat = min(number >> _BEAT_BITS, LEASE_MS_MAX), number & (1 << _BEAT_BITS) - 1
        return cls(rank, beat, wants, drives, avoids, packed[end:].decode(errors="replace"), lease_ms)

    def is_news(self, before: Self | None) -> bool:
        """Return whether other members should hear of this row, which follows ``before``, at once.

        The driver of a shard must hear that the member wants the shard, and the member that waits for a shard must hear
        that this one no longer drives it. All must hear which shards the member cannot drive.
        """
        if before is None:
            return True
        wants_more, drives_less = self.wants - before.wants, before.drives - self.drives
        return bool(wants_more or drives_less) or (self.rank, self.avoids) != (before.rank, before.avoids)


def _bitmap(numbers: Iterable[int], size: int) -> bytes:
    bitmap = bytearray(size)
    for number in numbers:
        bitmap[number // 8] |= 1 << number % 8
    return bytes(bitmap)


def _numbers(bitmap: bytes) -> frozenset[int]:
    return frozenset(8 * n + bit for n, byte in enumerate(bitmap) if byte for bit in range(8) if byte >> bit & 1)
