"""The queues that a client expects, because its app has declared them. No I/O.

Until the app creates a deleted one again, the client lets no other queue of the name take its place: each enqueue names
the uid of the queue, which is compared. Any thread may call the methods.
"""

from tickwheel import limits


class ExpectedQueues:
    """Queues by name, and the uids that the client knows."""

    def __init__(self) -> None:
        # A uid is empty if the client does not know it.
        self._uids: dict[str, bytes] = {}
        # Those that were deleted.
        self._lost: set[str] = set()

    def add(self, queue: str) -> None:
        """Expect the queue that the next `on_created` names."""
        if queue not in self._uids and len(self._uids) >= limits.QUEUES_MAX:
            # A namespace has no more queues, so some of these were deleted.
            self._uids.clear()
            self._lost.clear()
        self._uids.setdefault(queue, b"")

    def uid(self, queue: str) -> bytes:
        """Return the uid that an enqueue must name; empty if any queue of this name will do."""
        return self._uids.get(queue, b"")

    def has(self, queue: str) -> bool:
        """Return whether the queue is expected, and is not known to be deleted."""
        return queue in self._uids and queue not in self._lost

    def on_created(self, queue: str, uid: bytes) -> None:
        """Record the queue that the app has created or updated. ``uid`` is empty if it is unknown."""
        if queue in self._uids:
            self._uids[queue] = uid
            self._lost.discard(queue)

    def on_read(self, queue: str, uid: bytes) -> None:
        """Record a queue that the app has read. If it could not create the queue, it uses that of another program."""
        if self._uids.get(queue) == b"":
            self.on_created(queue, uid)

    def on_deleted(self, queue: str) -> None:
        """Record that the client deletes the queue."""
        if queue in self._uids:
            self._lost.add(queue)

    def on_not_found(self, queue: str, uid: bytes) -> None:
        """Record that no queue has the uid that an enqueue has named."""
        # Another thread may have created the queue again meanwhile.
        if uid and self._uids.get(queue) == uid:
            self._lost.add(queue)
