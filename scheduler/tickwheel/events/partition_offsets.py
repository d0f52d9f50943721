"""The next offset of each partition.

If the group assigns a partition to this reader again, and the reader continues at a higher offset than the expected
one, another reader of the group has read the records in between.
"""

from collections.abc import Iterable


class PartitionOffsets:
    """The partitions of one reader.

    Used by one thread: the library calls `assign` while the reader polls for a record.
    """

    def __init__(self) -> None:
        self.has_assignment = False
        self._assigned: set[int] = set()
        self._next: dict[int, int] = {}

    def assign(self, partitions: Iterable[int]) -> None:
        """Record partitions that the group has assigned to this reader, possibly in addition to earlier partitions."""
        self.has_assignment = True
        self._assigned.update(partitions)

    def advance(self, partition: int, offset: int) -> bool:
        """Record the offset of a record that was read.

        Return whether another reader has read records between this record and the previous record of this reader.
        """
        expected = self._next.get(partition, offset)
        # If older records are read again, nothing is missing: keep the higher offset.
        self._next[partition] = max(expected, offset + 1)
        if partition not in self._assigned:
            # If offsets are skipped within an assignment, the partition has no records at these offsets.
            return False
        self._assigned.discard(partition)
        return offset > expected
