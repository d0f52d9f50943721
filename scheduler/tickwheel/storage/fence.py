"""The fence of a shard as it is stored, and the name that its driver's connections have at the server."""

from struct import Struct

_FENCE = Struct(">QQ")
FENCE_BYTES = _FENCE.size


def client_name(namespace: str, shard: int) -> str:
    """What servers know the connections of a shard's driver by."""
    return f"tickwheel-events:{namespace}:{shard}"


def shard_from_client_name(namespace: str, name: str) -> int | None:
    """The shard whose driver's connections are named so; None where it is another's name."""
    before, _, shard = name.rpartition(":")
    return int(shard) if shard.isdecimal() and before == f"tickwheel-events:{namespace}" else None


def pack_fence(epoch: int, connection: int) -> bytes:
    """A fence as scripts compare it. Both numbers are below 2**53."""
    return _FENCE.pack(epoch, connection)


def epoch_of(fence: bytes) -> int:
    epoch: int = _FENCE.unpack(fence)[0]
    return epoch
