"""The stored form of a shard's fence and claim, and the client name of the driver's connections at the server."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Self

_FENCE = Struct(">QQ")
# Users of other namespaces choose the names of their connections, so a number can have any length.
_SHARD = re.compile(r"[0-9]{1,5}")
FENCE_BYTES = _FENCE.size
# Both numbers of a fence are below this limit, so that Lua can compare them as floating-point numbers.
_NUMBERS_END = 2**53


def client_name(namespace: str, shard: int) -> str:
    """Return the client name (`CLIENT SETNAME`) of the connections of a shard's driver."""
    return f"tickwheel-events:{namespace}:{shard}"


def shard_from_client_name(namespace: str, name: str) -> int | None:
    """Return the shard whose driver uses this client name, or None if no driver of the namespace uses the name."""
    before, _, shard = name.rpartition(":")
    return int(shard) if _SHARD.fullmatch(shard) and before == f"tickwheel-events:{namespace}" else None


def pack_fence(epoch: int, connection: int) -> bytes:
    """Return a fence in the form that scripts compare. Both numbers are below 2**53."""
    return _FENCE.pack(epoch, connection)


def is_fence(stored: bytes) -> bool:
    """Return whether an event process can have written these bytes as a fence. `claim_shard.lua` replaces others."""
    return len(stored) == FENCE_BYTES and max(_FENCE.unpack(stored)) < _NUMBERS_END


def epoch_of(fence: bytes) -> int:
    """Return the epoch of a packed fence."""
    epoch: int = _FENCE.unpack(fence)[0]
    return epoch


# The fields of `clock` that `StoredClaim.parse` reads, in this order.
CLAIM_FIELDS = ("fence", "election", "holder", "created")


@dataclass(frozen=True, slots=True)
class StoredClaim:
    """What a shard stores about its last claim.

    ``fence`` is empty if nobody has claimed the shard. ``election`` is the kind of election. In an election by lease,
    ``holder`` is the member that has claimed the shard; it is empty after the release. ``created`` is the time at which
    the shard's namespace was created; it is empty in the namespaces of older versions of Tickwheel, and after a loss of
    data.
    """

    fence: bytes = b""
    election: str = ""
    holder: str = ""
    created: bytes = b""

    @classmethod
    def parse(cls, fields: Sequence[bytes | None]) -> Self:
        """Parse the values of CLAIM_FIELDS. A fence of another program is kept, so that a claim can replace it."""
        fence, election, holder, created = (field or b"" for field in fields)
        return cls(fence, election.decode(errors="replace"), holder.decode(errors="replace"), created)

    @property
    def epoch(self) -> int:
        """The epoch of the fence; 0 if there is no fence, or if it is corrupt."""
        return epoch_of(self.fence) if is_fence(self.fence) else 0
