"""The part of the broker client's buffer that the unconfirmed sinks of all shards may take.

The shards of a process share one Kafka producer. A message for a topic that does not exist stays in its buffer for
about 30 s. If such messages filled the buffer, no shard could send any message.
"""

from collections import defaultdict
from threading import Lock
from typing import Final

# Approximate bytes of the headers and the key of a record.
RECORD_BYTES: Final = 1024


class UnconfirmedBuffer:
    """The bytes of messages for unconfirmed sinks that have no answer yet. Thread-safe."""

    def __init__(self, limit: int) -> None:
        """``limit``: the maximum of the bytes. The last message may exceed it, so each message can be sent."""
        self._limit = limit
        self._lock = Lock()
        self._total = 0
        # By shard that has or waits for room.
        self._used: defaultdict[int, int] = defaultdict(int)
        # Shards that were refused. Until they have room, no other shard takes more than its share.
        self._waiting: set[int] = set()

    def take(self, shard: int, size: int) -> bool:
        """Take room for a message of ``size`` bytes. Return False if there is none, or if it is for other shards."""
        needed = size + RECORD_BYTES
        with self._lock:
            used = self._used[shard]
            exceeds_share = used and used + needed > self._limit // len(self._used)
            if self._total >= self._limit or (exceeds_share and self._waiting - {shard}):
                self._waiting.add(shard)
                return False
            self._waiting.discard(shard)
            self._used[shard] += needed
            self._total += needed
            return True

    def release(self, shard: int, size: int) -> None:
        """Release the room of a message that has an answer, or is not sent."""
        with self._lock:
            self._used[shard] -= size + RECORD_BYTES
            self._total -= size + RECORD_BYTES
            self._forget_unused(shard)

    def leave(self, shard: int) -> None:
        """Record that no message of the shard waits."""
        with self._lock:
            self._waiting.discard(shard)
            self._forget_unused(shard)

    def _forget_unused(self, shard: int) -> None:
        if not self._used.get(shard) and shard not in self._waiting:
            self._used.pop(shard, None)
