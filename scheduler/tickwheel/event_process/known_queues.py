"""The queues of a namespace as an event process last read them. A read decodes only the rows whose bytes have changed.

A namespace may have 65,535 rows, and to decode all of them takes seconds. So the row of a new queue is read alone, if
the metadata shard stores the name of its number.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tickwheel.event_process import QueueRef
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.removal.queue_numbers import (
    QueueRows,
    decode_rows,
    fetch_name,
    fetch_numbers,
    fetch_rows,
    log_unreadable,
    placeholder_name,
    read_row,
)
from tickwheel.plan import Plan


class KnownQueue(NamedTuple):
    """A queue, or the placeholder of a deleted queue."""

    name: str
    config: QueueConfig
    ref: QueueRef


class KnownQueues:
    """The queues by number. The caller runs one plan at a time. Meanwhile, any thread may call `get`."""

    def __init__(self, context: NamespaceContext) -> None:
        self._context = context
        # By stored name, each readable row as stored, with the queue that was decoded from the row.
        self._rows: dict[bytes, tuple[bytes, KnownQueue]] = {}
        self._by_number: dict[int, KnownQueue] = {}
        self._with_sinks: dict[str, QueueConfig] | None = None
        self.highest_number = 0
        """The highest number that the last read of all rows, or a later read of one row, has found."""
        self.unreadable_rows = 0
        """The number of unreadable rows at the last read of all rows."""

    def get(self, number: int) -> KnownQueue | None:
        return self._by_number.get(number)

    def with_sinks(self) -> dict[str, QueueConfig]:
        """Return the queues with a sink, by name. The caller must not change the result."""
        if self._with_sinks is None:
            self._with_sinks = {
                queue.name: queue.config for queue in self._by_number.values() if queue.config.sink is not None
            }
        return self._with_sinks

    def read_all(self) -> Plan[None]:
        """Read all rows, as they are stored at one moment. The log names the unreadable ones."""
        stored_rows = yield from fetch_rows(self._context)
        rows: dict[bytes, tuple[bytes, KnownQueue]] = {}
        changed: dict[bytes, bytes] = {}
        for stored_name, stored in stored_rows:
            row = self._rows.get(stored_name)
            if row is not None and row[0] == stored:
                rows[stored_name] = row
            else:
                changed[stored_name] = stored
        # Unreadable rows are not kept: each read reports them again.
        decoded = QueueRows({}, [])
        yield from decode_rows(self._context, changed.items(), decoded)
        log_unreadable(self._context, decoded)
        for name, config in decoded.configs.items():
            stored_name = name.encode()
            rows[stored_name] = changed[stored_name], self._queue(name, config)
        self._rows = rows
        # Replaced and not changed, because other threads call `get` meanwhile.
        self._by_number = {queue.config.number: queue for _, queue in rows.values()}
        self._with_sinks = None
        self.highest_number = max(self._by_number, default=0)
        self.unreadable_rows = len(decoded.unreadable)

    def read_one(self, number: int) -> Plan[None]:
        """Read the row of one queue, or the placeholder if the queue was deleted. Forget the queue if the number has
        neither row: another queue may have the number, and only a read of all rows finds that queue.
        """
        known = self._by_number.get(number)
        if known is None:
            return
        # A placeholder has the uid of its queue. A placeholder itself has only one name.
        for name in dict.fromkeys((known.name, placeholder_name(number, known.config.uid))):
            if (yield from self._read(name, number)):
                return
        self._forget(number)

    def find(self, number: int) -> Plan[None]:
        """Read the row of a queue that is not known, if the metadata shard stores the name of the number."""
        name = yield from fetch_name(self._context, number)
        if name is not None:
            yield from self._read(name, number)

    def confirm(self, numbers: Iterable[int]) -> Plan[None]:
        """Forget the queues of these numbers whose names have other numbers now, or none."""
        names = {number: known.name for number in numbers if (known := self._by_number.get(number)) is not None}
        if not names:
            return
        stored_numbers = yield from fetch_numbers(self._context, [*names.values()])
        for number, stored in zip(names, stored_numbers, strict=True):
            if stored != number:
                self._forget(number)

    def _read(self, name: str, number: int) -> Plan[bool]:
        """Read the row of this name. Return False if it has another number, or none."""
        config = yield from read_row(self._context, name)
        if config is None or config.number != number:
            return False
        self._by_number[number] = self._queue(name, config)
        self._with_sinks = None
        self.highest_number = max(self.highest_number, number)
        return True

    def _forget(self, number: int) -> None:
        del self._by_number[number]
        self._with_sinks = None

    def _queue(self, name: str, config: QueueConfig) -> KnownQueue:
        return KnownQueue(name, config, QueueRef(name, config.leader_context(self._context.history)))
