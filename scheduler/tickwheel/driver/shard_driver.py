"""Runs the wheel of one shard, partly in memory and partly in Redis: files, cascades, loads and fires its timers.

The driver does no I/O. It is a generator that yields commands and is sent the replies, so it can only fail at a
command. If the connection fails, the caller drops the generator, with its state in memory, and creates a new driver for
the new connection. The new driver claims the shard, and reads the whole inbox and every slot whose interval has begun.
Reading again is always safe, because all steps are idempotent. The driver of a former leader continues until one of
its commands raises `Fenced`.

A *duty* is one of the jobs that the driver repeats: read the inbox, file timers, serve slots, drop slots, and fire due
timers. To *serve* a slot is to cascade it or, on level 2 (the lowest level in Redis), to read it into memory. A timer
has its *final answer* when a script has acted on the timer or has ignored it as stale, or when its lease is known to be
over. Such a timer may be deleted.
"""

from collections.abc import Generator
from typing import Any, Final

from tickwheel.driver.batch_size import AdaptiveBatchSize
from tickwheel.driver.clock import Clock
from tickwheel.driver.commands import Command, DutySteps, MoveSteps, ReadClaim, ReadSlot, ReadSlots, ReadStream, Steps
from tickwheel.driver.config import DriverConfig
from tickwheel.driver.corrupt_entries import CorruptEntries
from tickwheel.driver.fenced_shard import WritesRefused
from tickwheel.driver.filing import CHUNK_TIMERS, Filing
from tickwheel.driver.firing import TimerFirer
from tickwheel.driver.inbox_buffer import Entry, InboxBuffer, timers_to_file
from tickwheel.driver.loaded_timers import LoadedTimers
from tickwheel.driver.slots import Slot, Slots
from tickwheel.election.claims import Claims
from tickwheel.errors import DataLoss, Fenced, TickwheelError
from tickwheel.storage.fence import StoredClaim
from tickwheel.storage.stream_id import HIGHEST_ID, id_after
from tickwheel.storage.timer import HEAD_BYTES, CorruptTimers, Kind, parse_entry
from tickwheel.storage.wheel_levels import LOWEST, RADIX, is_near, name, parse, start

# The approximate maximum number of timers that one command of a duty moves. Such a command takes one or two ms of the
# server or of this process.
READ_TIMERS: Final = 2_000
FILE_TIMERS: Final = 2_000
CASCADE_TIMERS: Final = 1_000
# Maximum number of calls of each duty in a turn. Promotion runs before each of the other duties, with this maximum each
# time.
PROMOTE_CALLS, EXPIRE_CALLS, RETIRE_CALLS, SLOT_CALLS, DROP_CALLS = 4, 4, 2, 8, 8
# A slot that starts in more than URGENT_MS is cascaded slowly, one piece every UNHURRIED_MS. The cascade may take
# minutes or hours. Without the pauses, the millions of timers of a slot would keep the server busy for seconds.
URGENT_MS, UNHURRIED_MS = 10_000, 5.0
# Limits of timers in memory. At the first limit, the driver stops reading slots. At the second limit, the driver no
# longer keeps new timers of the inbox in memory, but only files them into slots.
MEMORY_TIMERS_FROM_SLOTS: Final = 500_000
MEMORY_TIMERS: Final = 1_000_000
# If this many timers are read and not yet filed, the driver files timers before it reads more of the inbox.
UNFILED_TIMERS: Final = 100_000
SLOT_NAMES: Final = 1_000
# In place of the id before which `file_timers.lua` trims the inbox: all entries are filed, and a new inbox begins.
NEW_INBOX: Final = b"+"


class ShardDriver:
    """Drives one shard with one fence. After a newer driver has claimed the shard, commands raise `Fenced`."""

    def __init__(self, config: DriverConfig, clock: Clock, claims: Claims) -> None:
        self.claimed = self.claim_refused = False
        self._claims = claims
        self._config = config
        self._clock = clock
        self._stats = config.stats
        self._shard = config.make_fenced_shard()
        self._file, self._cascade, self._drop_slot, self._claim = map(
            self._shard.script, ("file_timers", "cascade_slot", "drop_slot", claims.script)
        )
        self._inbox_batch_size = AdaptiveBatchSize(READ_TIMERS)
        self._more_in_inbox = False
        self._slot_batch_size = AdaptiveBatchSize(READ_TIMERS)
        self._slots = Slots()
        self._unhurried_at = 0.0
        self._shows_hold = False
        self._inbox_buffer = InboxBuffer()
        self._corrupt_entries = CorruptEntries(config.shard, config.stats)

    def run(self) -> Steps:
        """Claim the shard, take over its wheel, and run it indefinitely."""
        yield from self.claim()
        yield from self.take_over()
        while True:
            yield from self.read_inbox(until_ms=self.next_wake())
            yield from self.work()

    def claim(self) -> Steps:
        """Claim the shard: store this driver's fence as the fence of the shard."""
        try:
            if not self._shard.fence:
                yield from self._choose_fence()
            accepted = "" if self._clock.unsaved_offset is None else self._clock.unsaved_offset
            now, high, accepted_lead, *corrupt = yield from self._call_claim(accepted, "", 0)
            self._corrupt_entries.report_replaced(corrupt)
            self._clock.on_claimed(int(now), int(high) if high else None, int(accepted_lead or 0))
            # Only now is it known how far the clock guard trusts the server's clock. The second call stores this time,
            # before the first timer fires.
            is_holding = self._clock.is_holding
            yield from self._call_claim("", self._clock.now(), max(1, self._clock.ahead_ms) if is_holding else 0)
        except TickwheelError as error:
            # A damaged shard, or one whose server refuses all writes, did not compare the fences: try again.
            self.claim_refused = not isinstance(error, DataLoss | WritesRefused)
            raise
        self._claims.confirm()
        self.claimed, self._shows_hold = True, is_holding
        self._stats.epoch = self._claims.epoch or 0

    def _choose_fence(self) -> Steps:
        stored = StoredClaim.parse((yield ReadClaim(self._shard.keys["clock"])))
        if (fence := self._claims.next_fence(stored)) is None:
            raise Fenced(f"shard {self._shard.number} is held by epoch {stored.epoch}", stored.epoch)
        self._shard.fence = fence

    def _call_claim(self, accepted: int | str, *trusted: int | str) -> Generator[Command, Any, Any]:
        args = [self._config.election, accepted, self._config.owner, *trusted, *self._claims.arguments()]
        return (yield from self._shard.call_fenced(self._claim, args))

    def take_over(self) -> Steps:
        """Start with no timers in memory: mark all slots as unread. The first read of the inbox begins at its start."""
        self._loaded_timers = LoadedTimers(self._clock.now())
        self._firer = TimerFirer(
            self._shard, self._config.queues, self._clock, self._loaded_timers, self._inbox_buffer, self._stats
        )
        first = 0
        while True:
            names = yield ReadSlots(self._shard.keys["slots"], first, SLOT_NAMES)
            for slot_name in names:
                self._slots.touch(*parse(slot_name), length=None)
            first += len(names)
            if len(names) < SLOT_NAMES:
                return

    def turn(self) -> DutySteps:
        """Read the inbox without waiting, and do a bounded share of every duty. Return whether there was any work."""
        news = yield from self.read_inbox()
        done = yield from self.work()
        return news or done

    def work(self) -> DutySteps:
        """Do a bounded share of every duty except reading the inbox. Return whether there was work.

        Promotion runs before each of the other duties.
        """
        fire, busy = self._firer.fire, False
        for duty in (
            self.file(),
            self.serve_slots(),
            self.drop_slots(),
            fire(Kind.EXPIRE, EXPIRE_CALLS),
            fire(Kind.RETIRE, RETIRE_CALLS),
        ):
            promoted = yield from fire(Kind.PROMOTE, PROMOTE_CALLS)
            done = yield from duty
            busy = busy or promoted or done
        if self._clock.unsaved_offset is not None or self._clock.is_holding != self._shows_hold:
            # An operator has accepted a step of the server's clock, or the clock guard began or ceased to hold. Another
            # claim with the same fence stores this in the shard: an accepted step then outlives this process, and
            # `tickwheel doctor` names the guard.
            yield from self.claim()
        self._stats.in_memory = self._loaded_timers.count
        self._stats.unfiled = self._inbox_buffer.count
        self._stats.slots = len(self._slots)
        return busy

    def next_wake(self) -> float:
        """Return the moment, on the monotonic clock, at which there is work even if the inbox stays empty.

        If there is work now, the moment lies in the past.
        """
        if self._more_in_inbox or self._loaded_timers.drained_slots:
            return 0.0
        moments = [self._inbox_buffer.next_rotation(), self._clock.next_probe(self._loaded_timers.count > 0)]
        moments.append(self._firer.next_check_ms)
        times = [near.next_expiry() for near in self._loaded_timers.near.values()]
        slot = self._slots.next_to_serve(self._clock.now(), self._lowest_to_serve())
        if slot is None:
            times.append(self._slots.next_start(self._lowest_to_serve()))
        else:
            moments.append(self._may_serve_at(slot))
        moments += (self._clock.monotonic_at(time_ms) for time_ms in times if time_ms is not None)
        return min(moments)

    def read_inbox(self, until_ms: float | None = None) -> DutySteps:
        """Read new timers, and load near timers into memory. Wait for timers until ``until_ms``, unless it is None."""
        if self._inbox_buffer.count >= UNFILED_TIMERS:
            return False
        count = self._inbox_batch_size.count
        entries = yield ReadStream(self._shard.keys["inbox"], self._inbox_buffer.last_read_id, count, until_ms)
        timers = size = 0
        for entry_id, packed in entries:
            entry = self._admit(entry_id, packed)
            self._inbox_buffer.add(entry, self._clock.monotonic())
            timers += entry.count
            # A corrupt entry has no timers, but may be large.
            size += entry.count or len(packed) // HEAD_BYTES
        self._more_in_inbox = self._inbox_batch_size.observe(len(entries), size)
        self._stats.inbox_timers += timers
        return bool(entries)

    def file(self) -> DutySteps:
        """File the next entries of the buffer, and trim them from the inbox.

        If there are no entries to file, read the server's clock when a probe is due.
        """
        self._inbox_buffer.rotate(self._clock.monotonic())
        prefix = self._inbox_buffer.prefix(FILE_TIMERS)
        if prefix:
            yield from self._file_prefix(prefix)
        elif self._clock.monotonic() >= self._clock.next_probe(self._loaded_timers.count > 0):
            [now] = yield from self._shard.call_fenced(self._file, [b""])
            self._clock.observe(now)
        return bool(prefix)

    def serve_slots(self) -> DutySteps:
        """Cascade or read the next slots, until about CASCADE_TIMERS timers were moved."""
        moved = 0
        for served in range(SLOT_CALLS):
            slot = self._slots.next_to_serve(self._clock.now(), self._lowest_to_serve())
            if slot is None or moved >= CASCADE_TIMERS or self._clock.monotonic() < self._may_serve_at(slot):
                return served > 0
            moved += yield from self._cascade_slot(slot) if slot.level > LOWEST else self._read_slot(slot)
        return True

    def drop_slots(self) -> DutySteps:
        """Drop slots that were read to their end and whose timers all have their final answers."""
        for dropped in range(DROP_CALLS):
            slot = self._next_to_drop()
            if slot is None:
                return dropped > 0
            key = self._shard.slot_key(slot.level, slot.number)
            length = yield from self._shard.call_fenced(
                self._drop_slot, [name(slot.level, slot.number), slot.position], key
            )
            if length:
                self._slots.touch(slot.level, slot.number, length)
            else:
                self._slots.remove(slot)
        return True

    def _admit(self, entry_id: bytes, packed: bytes) -> Entry:
        now = self._clock.now()
        near: list[bytes] = []
        far: list[bytes] = []
        try:
            timers = parse_entry(packed)
        except CorruptTimers as error:
            # An empty entry keeps its place in the order of the inbox, so it is trimmed with its neighbours.
            self._corrupt_entries.skip(f"entry {entry_id.decode()} of the inbox", packed, error)
            return Entry(entry_id, b"", [], 0)
        for time_ms, _, kind, timer in timers:
            if is_near(time_ms, now) and self._loaded_timers.count < MEMORY_TIMERS:
                self._loaded_timers.add(time_ms, kind, timer)
                near.append(timer)
            else:
                far.append(timer)
            if kind is Kind.EXPIRE:
                self._loaded_timers.finished_leases.on_started(timer)
            elif kind is Kind.RETIRE:
                self._loaded_timers.finished_leases.on_finished(timer)
        return Entry(entry_id, b"".join(far), near, len(near) + len(far))

    def _file_prefix(self, prefix: list[Entry]) -> Steps:
        filing = Filing()
        filing.add(self._timers_to_file(prefix), self._clock.now())
        lists = [self._shard.slot_key(*slot) for slot in filing.slots]
        args = [self._trim_before(prefix), *filing.arguments()]
        now, *lengths = yield from self._shard.call_fenced(self._file, args, rest=lists)
        self._clock.observe(now)
        for (slot, timers), length in zip(filing.slots.items(), lengths, strict=True):
            self._on_pushed(*slot, timers, length)
            self._stats.filed_timers += len(timers)
        self._inbox_buffer.on_filed(prefix)

    def _timers_to_file(self, prefix: list[Entry]) -> list[bytes]:
        """Return the timers to file, including near timers without a final answer: these must outlive the process."""
        return list(timers_to_file(prefix, self._inbox_buffer.unconfirmed, self._loaded_timers.finished_leases))

    def _trim_before(self, prefix: list[Entry]) -> bytes:
        """Return the id before which the inbox must be trimmed to remove exactly the prefix.

        If the inbox accepts no further entry after the prefix, return NEW_INBOX.
        """
        return NEW_INBOX if prefix[-1].id == HIGHEST_ID else id_after(prefix[-1].id)

    def _on_pushed(self, level: int, number: int, timers: list[bytes], length: int) -> None:
        """Record that a slot has grown by these timers.

        If the slot is near and was read to its end, load the timers that are not in memory yet, and move the position
        past all of these timers. Otherwise `serve_slots` reads them later.
        """
        if level > LOWEST:
            self._slots.touch(level, number, None)
            return
        slot = self._slots.touch(level, number, length)
        chunks = -(-len(timers) // CHUNK_TIMERS)
        if slot.position != length - chunks or not is_near(start(level, number), self._clock.now()):
            return
        missing = [timer for timer in timers if timer not in self._inbox_buffer.unconfirmed]
        if self._loaded_timers.count + len(missing) <= MEMORY_TIMERS:
            self._loaded_timers.add_packed(b"".join(missing))
            slot.position = length

    def _read_slot(self, slot: Slot) -> MoveSteps:
        key = self._shard.slot_key(slot.level, slot.number)
        chunks = yield ReadSlot(key, slot.position, self._slot_batch_size.count)
        timers = sum(self._load_chunk(slot, chunk) for chunk in chunks)
        slot.position += len(chunks)
        if not self._slot_batch_size.observe(len(chunks), timers):
            slot.length = slot.position
        if slot.read_to_end and not self._loaded_timers.is_open(slot.number):
            self._loaded_timers.drained_slots.add(slot.number)
        return timers

    def _load_chunk(self, slot: Slot, chunk: bytes) -> int:
        try:
            return self._loaded_timers.add_packed(chunk)
        except CorruptTimers as error:
            self._corrupt_entries.skip(f"a chunk of slot {name(slot.level, slot.number)}", chunk, error)
            return 0

    def _cascade_slot(self, slot: Slot) -> MoveSteps:
        below, first = slot.level - 1, slot.number * RADIX
        self._unhurried_at = self._clock.monotonic() + UNHURRIED_MS
        key = self._shard.slot_key(slot.level, slot.number)
        children = [self._shard.slot_key(below, first + index) for index in range(RADIX)]
        args = [slot.level, slot.number, CASCADE_TIMERS, CHUNK_TIMERS]
        left, *grown = yield from self._shard.call_fenced(self._cascade, args, key, children)
        for index, length in zip(grown[::2], grown[1::2], strict=True):
            self._slots.touch(below, first + index, length if below == LOWEST else None)
        if left:
            return CASCADE_TIMERS
        self._slots.remove(slot)
        return 0

    def _may_serve_at(self, slot: Slot) -> float:
        """Return the moment on the monotonic clock from which the slot may be served. 0 means immediately."""
        return self._unhurried_at if slot.start_ms > self._clock.now() + URGENT_MS else 0.0

    def _next_to_drop(self) -> Slot | None:
        while self._loaded_timers.drained_slots:
            number = self._loaded_timers.drained_slots.pop()
            slot = self._slots.get(LOWEST, number)
            if slot is not None and slot.read_to_end and not self._loaded_timers.is_open(number):
                return slot
        return None

    def _lowest_to_serve(self) -> int:
        return LOWEST if self._loaded_timers.count < MEMORY_TIMERS_FROM_SLOTS else LOWEST + 1
