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
        # By shard. A shard that has been refused counts, too, so that the others leave room for its messages.
        self._used: defaultdict[int, int] = defaultdict(int)

    def take(self, shard: int, size: int) -> bool:
        """Take room for a message of ``size`` bytes. Return False if there is none, or if the shard has its share."""
        with self._lock:
            used = self._used[shard]
            if self._total >= self._limit or (used and used >= self._limit // len(self._used)):
                return False
            self._used[shard] += size + RECORD_BYTES
            self._total += size + RECORD_BYTES
            return True

    def release(self, shard: int, size: int) -> None:
        """Release the room of a message that has an answer, or is not sent."""
        with self._lock:
            self._used[shard] -= size + RECORD_BYTES
            self._total -= size + RECORD_BYTES
            if not self._used[shard]:
                del self._used[shard]

    def leave(self, shard: int) -> None:
        """Forget that a message of the shard was refused: the shard has none that waits."""
        with self._lock:
            if not self._used[shard]:
                del self._used[shard]
