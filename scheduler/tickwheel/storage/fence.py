"""The stored form of a shard's fence, and the client name of the driver's connections at the server."""

from struct import Struct

_FENCE = Struct(">QQ")
FENCE_BYTES = _FENCE.size


def client_name(namespace: str, shard: int) -> str:
    """Return the client name (`CLIENT SETNAME`) of the connections of a shard's driver."""
    return f"tickwheel-events:{namespace}:{shard}"


def shard_from_client_name(namespace: str, name: str) -> int | None:
    """Return the shard whose driver uses this client name, or None if no driver of the namespace uses the name."""
    before, _, shard = name.rpartition(":")
    return int(shard) if shard.isdecimal() and before == f"tickwheel-events:{namespace}" else None


def pack_fence(epoch: int, connection: int) -> bytes:
    """Return a fence in the form that scripts compare. Both numbers are below 2**53."""
    return _FENCE.pack(epoch, connection)


def epoch_of(fence: bytes) -> int:
    """Return the epoch of a packed fence."""
    epoch: int = _FENCE.unpack(fence)[0]
    return epoch
