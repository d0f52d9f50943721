"""How far each partition was read, and whether one that the group gave back is read on where this reader stopped."""

from collections.abc import Iterable


class PartitionOffsets:
    """The partitions of one reader.

    Of one thread: the library tells of an assignment while it is asked for a record.
    """

    def __init__(self) -> None:
        self.has_assignment = False
        self._assigned: set[int] = set()
        self._next: dict[int, int] = {}

    def assign(self, partitions: Iterable[int]) -> None:
        """These were given to this reader, or given back: all that it has, or those that are new to it."""
        self.has_assignment = True
        self._assigned.update(partitions)

    def advance(self, partition: int, offset: int) -> bool:
        """Count a record as read; whether others read some between the last one that was read here and this one."""
        expected = self._next.get(partition, offset)
        # Read again up to where it was, it misses nothing.
        self._next[partition] = max(expected, offset + 1)
        if partition not in self._assigned:
            # Offsets that are not there within an assignment are transitions that are missing for everybody.
            return False
        self._assigned.discard(partition)
        return offset > expected
