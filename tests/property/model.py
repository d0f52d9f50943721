"""A model of Tickwheel in plain Python: it sorts lists, and finds the holder of a value by a scan over all messages.

The model is slow, and stores nothing that it can compute. Times are integer milliseconds. Every operation returns
the result for the caller, or raises the library's error class with the attributes that the machine compares.
"""

import math
from collections.abc import Callable, Collection, Iterator
from typing import Any

from tests.property.model_messages import (
    CANCELLED,
    COMPLETED,
    ERRORED,
    INVISIBLE,
    PENDING,
    RUNNING,
    STATES,
    EnqueueArguments,
    Entry,
    Event,
    Key,
    Settings,
)
from tickwheel import IdConflict, InvalidTransition, LeaseLost, MessageNotFound, QueueBlocked


class QueueModel:
    """One queue: its settings and all its messages, including the removed messages."""

    def __init__(
        self, settings: Settings, place: Callable[[str], int], now: Callable[[], int], orders: list[int]
    ) -> None:
        self.settings = settings
        self.messages: dict[Key, Entry] = {}
        self.gone: list[Entry] = []
        self.lateness: list[int] = []
        self.missed: list[int] = []
        self.deadlines = 0
        self._place = place
        self._now = now
        self._orders = orders

    # Operations of callers

    def enqueue(
        self, batch: list[EnqueueArguments], high: Callable[[int], int | None]
    ) -> list[tuple[str, str, bool] | None]:
        """Return (id, state, created) of each message, or None if the id belongs to another message.

        ``high`` returns the latest time that the clock guard of a shard has recorded. A message with an explicit due
        time more than a second after this time is Invisible at first.
        """
        if self.settings.enqueue_blocked and not all(self.key_of(arguments) in self.messages for arguments in batch):
            raise QueueBlocked
        results: list[tuple[str, str, bool] | None] = []
        for arguments in batch:
            key = self.key_of(arguments)
            entry = self.messages.get(key)
            if entry is None:
                entry = self._new(arguments, key, high)
                results.append((arguments.id, entry.state, True))
            else:
                results.append((arguments.id, entry.state, False) if entry.arguments == arguments else None)
        if None in results:
            raise IdConflict("", results)
        return results

    def take(self, shard: int, limit: int, where: dict[str, str]) -> list[Entry]:
        """Return the messages that a dequeue leases on one shard, most urgent first, one per exclusive value."""
        best: dict[Any, Entry] = {}
        for entry in self.pending(shard, where):
            if self.settings.exclusive_key is None:
                best[entry.key] = entry
            elif not self.is_held(entry.value):
                best.setdefault(entry.value, entry)
        return sorted(best.values(), key=lambda entry: entry.urgency)[:limit]

    def lease(self, entry: Entry, lease: int | None, token: bytes, worker: str) -> None:
        """Lease one message to a worker."""
        now = self._now()
        duration = lease or entry.arguments.lease or self.settings.lease
        if entry.deadline is not None:
            self.deadlines += 1
            if now > entry.deadline:
                self.missed.append(now - entry.deadline)
        entry.attempts += 1
        entry.token, entry.worker, entry.until = token, worker, now + duration
        entry.becomes("dequeue", RUNNING, now, lateness=max(0, now - entry.due))

    def complete(self, key: Key, token: bytes, result: str | None = None) -> None:
        entry = self.messages.get(key)
        if entry is not None and entry.state == COMPLETED and entry.token == token:
            return
        entry = self._owned(key, token)
        entry.worker, entry.error, entry.result = "", "", result
        self._finish("complete", entry, COMPLETED)

    def fail(self, key: Key, token: bytes, error: str, delay: int, final: bool = False) -> str:
        entry = self._owned(key, token)
        entry.error = error
        if final or entry.attempts >= self._most(entry):
            self._give_back("fail", entry, ERRORED, self._now() + self.settings.errored_retention)
        elif delay > 0:
            self._give_back("fail", entry, INVISIBLE, self._now() + delay)
        else:
            self._give_back("fail", entry, PENDING, self._now())
        return entry.state

    def release(self, key: Key, token: bytes) -> None:
        entry = self._owned(key, token)
        entry.attempts -= 1
        self._give_back("release", entry, PENDING, self._now())

    def extend(self, key: Key, token: bytes, lease: int) -> int:
        entry = self._owned(key, token)
        entry.until = max(entry.until, self._now() + lease)
        return entry.until

    def cancel(self, key: Key, release: bool) -> tuple[str, int, int, bool]:
        """Return (state, version, until, changed)."""
        entry = self._there(key)
        if entry.state == CANCELLED:
            if entry.held and release:
                self._end_message(entry)
            return entry.state, entry.version, entry.until, False
        if entry.state in (COMPLETED, ERRORED):
            raise InvalidTransition("", entry.state)
        if entry.state == RUNNING and self.settings.exclusive_key is not None and not release:
            entry.held = True
            self._finish("cancel", entry, CANCELLED, entry.until)
        else:
            entry.token, entry.worker = None, ""
            self._finish("cancel", entry, CANCELLED)
        entry.error = ""
        return entry.state, entry.version, entry.until, True

    def reschedule(
        self,
        key: Key,
        high: int | None,
        delay: int | None = None,
        due: int | None = None,
        deadline: int | None = None,
        deadline_in: int | None = None,
    ) -> tuple[str, int, int]:
        """Return (state, version, due)."""
        entry = self._there(key)
        now = self._now()
        if entry.state not in (INVISIBLE, PENDING):
            raise InvalidTransition("", entry.state)
        if delay is not None:
            due = now + delay
            entry.due = entry.until = due
        elif due is not None:
            entry.due = entry.until = due
        if deadline is not None or deadline_in is not None:
            entry.deadline = deadline if deadline_in is None else now + deadline_in
        # A step of the clock makes a message ready neither by a new absolute due time nor by its former time.
        is_guarded = due is not None or entry.state == INVISIBLE
        held_back = delay is None and is_guarded and self._is_beyond(entry.until, high)
        becomes = PENDING if entry.until <= now and not held_back else INVISIBLE
        entry.becomes("reschedule", becomes, now, **entry.times())
        return entry.state, entry.version, entry.due

    def redrive(self, key: Key) -> tuple[str, int, int]:
        """Return (state, version, until)."""
        entry = self._there(key)
        if entry.state != ERRORED:
            raise InvalidTransition("", entry.state)
        entry.attempts, entry.until = 0, self._now()
        entry.becomes("redrive", PENDING, self._now())
        return entry.state, entry.version, entry.until

    def purge(self, states: Collection[str]) -> int:
        """End and remove the messages in these states, and return their number.

        A message that holds its exclusive value after it was cancelled counts as Running.
        """
        purged = [entry for entry in self.messages.values() if (RUNNING if entry.held else entry.state) in states]
        for entry in purged:
            entry.until, entry.held = self._now(), False
            if not entry.is_finished:
                entry.becomes("purge", CANCELLED, self._now())
            entry.becomes("purge", None, self._now())
            self.gone.append(self.messages.pop(entry.key))
        return len(purged)

    # Effects of time

    def run_due(self) -> None:
        """Apply every change that is due."""
        for entry in list(self.messages.values()):
            if entry.until <= self._now():
                self._fire(entry)

    def next_due(self) -> float:
        """Return the time of the next change."""
        return min((entry.until for entry in self.waiting()), default=math.inf)

    # Queries

    def key_of(self, arguments: EnqueueArguments) -> Key:
        key = self.settings.exclusive_key
        return arguments.id, None if key is None else dict(arguments.metadata)[key]

    def pending(self, shard: int | None, where: dict[str, str]) -> list[Entry]:
        """Return Pending messages with every pair, most urgent first, whether their value is free or not."""
        entries = [
            entry
            for entry in self.messages.values()
            if entry.state == PENDING and shard in (None, entry.shard) and where.items() <= entry.metadata.items()
        ]
        return sorted(entries, key=lambda entry: entry.urgency)

    def is_held(self, value: str | None) -> bool:
        return any(entry.value == value and (entry.state == RUNNING or entry.held) for entry in self.messages.values())

    def waiting(self) -> list[Entry]:
        """Return the messages that wait for a time."""
        return [entry for entry in self.messages.values() if entry.state != PENDING]

    def counts(self, shard: int | None = None) -> dict[str, int]:
        counts = dict.fromkeys(STATES, 0)
        for entry in self.messages.values():
            if shard in (None, entry.shard):
                counts[entry.state] += 1
        return counts

    def forecast(self, minutes: int) -> list[int]:
        first = self._now() // 60_000
        due = [entry.until // 60_000 for entry in self.messages.values() if entry.state == INVISIBLE]
        return [due.count(first + n) for n in range(minutes)]

    def everything(self) -> Iterator[Entry]:
        """Return all messages that ever existed."""
        yield from self.gone
        yield from self.messages.values()

    # Helpers of the operations

    def _new(self, arguments: EnqueueArguments, key: Key, high: Callable[[int], int | None]) -> Entry:
        now = self._now()
        shard = self._place(arguments.id if key[1] is None else key[1])
        # The first number of a shard is the server's time in units of 1/32 ms.
        self._orders[shard] = (self._orders[shard] or self._now() * 32 % 2**47) + 1
        due = now + arguments.delay if arguments.due is None else arguments.due
        deadline = arguments.deadline if arguments.deadline_in is None else now + arguments.deadline_in
        held_back = arguments.due is not None and self._is_beyond(due, high(shard))
        state = PENDING if due <= now and not held_back else INVISIBLE
        entry = Entry(key, shard, self._orders[shard], arguments, due, deadline, state, due)
        entry.payload, entry.metadata = arguments.payload, dict(arguments.metadata + arguments.trace)
        entry.history.append(Event(1, None, state, now, due, 0, **entry.times(), by="enqueue"))
        self.messages[key] = entry
        return entry

    def _is_beyond(self, due: int, high: int | None) -> bool:
        return high is not None and due > high + 1_000

    def _there(self, key: Key) -> Entry:
        if key not in self.messages:
            raise MessageNotFound
        return self.messages[key]

    def _owned(self, key: Key, token: bytes) -> Entry:
        """Return the Running message with this lease. If the message was cancelled, free its value instead."""
        entry = self.messages.get(key)
        if entry is not None and entry.held and entry.token == token:
            self._end_message(entry)
        if entry is None or entry.state != RUNNING or entry.token != token:
            raise LeaseLost("")
        return entry

    def _most(self, entry: Entry) -> int:
        return entry.arguments.max_attempts or self.settings.max_attempts

    def _of_last_lease(self, entry: Entry) -> str:
        reason = [f"the lease of attempt {entry.attempts} of {self._most(entry)} ended"]
        reason += [f"worker {entry.worker}"] if entry.worker else []
        reason += [f"the failure before: {entry.error}"] if entry.error else []
        return "; ".join(reason)

    def _finish(self, by: str, entry: Entry, state: str, until: int | None = None) -> None:
        """Complete or cancel a message: only the header is kept, for the retention or until `until`."""
        entry.payload, entry.metadata = b"", {}
        entry.until = self._now() + self.settings.retention if until is None else until
        entry.becomes(by, state, self._now())

    def _give_back(self, by: str, entry: Entry, state: str, until: int) -> None:
        entry.token, entry.worker, entry.until = None, "", until
        entry.becomes(by, state, self._now())

    def _end_message(self, entry: Entry) -> None:
        entry.held, entry.token, entry.worker = False, None, ""
        entry.until = self._now() + self.settings.retention

    def _fire(self, entry: Entry) -> None:
        now = self._now()
        if entry.state == INVISIBLE:
            self.lateness.append(now - entry.until)
            entry.becomes("promote", PENDING, now, lateness=now - entry.until)
        elif entry.state == RUNNING and entry.attempts >= self._most(entry):
            entry.error = self._of_last_lease(entry)
            self._give_back("expire", entry, ERRORED, now + self.settings.errored_retention)
        elif entry.state == RUNNING:
            self._give_back("expire", entry, PENDING, now)
        elif entry.held:
            self._end_message(entry)
        elif entry.is_finished:
            entry.becomes("retire", None, now)
            self.gone.append(self.messages.pop(entry.key))


class Model:
    """A namespace: queues over the same shards, under one clock."""

    def __init__(self, shards: int, now: int, place: Callable[[str, str], int]) -> None:
        """``place`` maps a queue and a routing key to a shard."""
        self.shards = shards
        self.now = now
        self.queues: dict[str, QueueModel] = {}
        self._place = place
        self._orders = [0] * shards

    def create_queue(self, name: str, settings: Settings) -> None:
        self.queues[name] = QueueModel(settings, lambda key: self._place(name, key), lambda: self.now, self._orders)

    def run_due(self) -> None:
        for queue in self.queues.values():
            queue.run_due()

    def advance(self, duration: int) -> None:
        """Advance the clock and apply each change at its own time."""
        target = self.now + duration
        self.run_due()
        while (soonest := min(queue.next_due() for queue in self.queues.values())) <= target:
            self.now = max(self.now, int(soonest))
            self.run_due()
        self.now = target
