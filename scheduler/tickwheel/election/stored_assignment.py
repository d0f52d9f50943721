"""The assignment that an election by lease stores, with the header by which members compare and replace it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, Self

from tickwheel.election.assignment import UNREADABLE, Assignment, pack, unpack

# A version that grows, and a random number: after the metadata was set back, a version can come a second time.
_HEADER: Final = Struct(">QQ")
_NUMBERS_END: Final = 2**53


@dataclass(frozen=True, slots=True)
class StoredAssignment:
    """An assignment with its ``header``. A member replaces the assignment only if it has seen this header."""

    header: bytes
    version: int
    members: tuple[str | None, ...]

    @classmethod
    def parse(cls, header: bytes, packed: bytes) -> Self:
        """Parse the stored form. Data that no version of Tickwheel writes is an empty assignment with version 0."""
        try:
            if len(header) != HEADER_BYTES:
                raise ValueError("no header")
            version, number = _HEADER.unpack(header)
            if max(version, number) >= _NUMBERS_END:
                raise ValueError("no version")
            return cls(header, version, tuple(unpack(packed)))
        except UNREADABLE:
            return cls(header, 0, ())

    def packed(self) -> bytes:
        """Return the stored form: the header, then the assignment."""
        return self.header + pack([*self.members])

    def of(self, shards: int) -> Assignment:
        """Return the member of each shard; None for a shard without a member."""
        return [*self.members, *[None] * shards][:shards]

    @classmethod
    def make(cls, version: int, members: Sequence[str | None], random: Callable[[], float]) -> Self:
        """Return an assignment with a new header. ``random`` returns numbers from 0 to 1."""
        return cls(_HEADER.pack(version, int(random() * _NUMBERS_END)), version, tuple(members))


HEADER_BYTES: Final = _HEADER.size
NONE_STORED: Final = StoredAssignment(b"", 0, ())
