"""The next offset of each partition, to detect that another reader of the group has read in between."""

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
        """Record partitions that the group assigned to this reader: all of its partitions, or the additional ones."""
        self.has_assignment = True
        self._assigned.update(partitions)

    def advance(self, partition: int, offset: int) -> bool:
        """Record a record as read. Return whether another reader has read records between the last one and this one."""
        expected = self._next.get(partition, offset)
        # If older records are read again, nothing is missing: keep the higher offset.
        self._next[partition] = max(expected, offset + 1)
        if partition not in self._assigned:
            # Offsets that are skipped within an assignment are missing for all readers.
            return False
        self._assigned.discard(partition)
        return offset > expected
