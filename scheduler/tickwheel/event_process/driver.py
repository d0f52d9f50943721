"""The wheel of one shard over memory and Redis, without I/O: a generator of commands that is sent their replies.

Everything that can go wrong falls between two commands: a crash is a generator that is dropped, a deposed leader one
that goes on. Nothing in memory outlives the connection: a new one means a new driver, which claims the shard and reads
the inbox from its start and every slot that has started. Reading again is always right, for all here is idempotent.
"""

from math import inf
from struct import Struct
from typing import Any, Final

from tickwheel import keys
from tickwheel.errors import Fenced, TickwheelError
from tickwheel.event_process.clock import Clock
from tickwheel.event_process.commands import (
    Command,
    Duty,
    ReadFence,
    ReadInbox,
    ReadSlot,
    ReadSlots,
    Refused,
    Steps,
)
from tickwheel.event_process.filing import CHUNK_TIMERS, Filing
from tickwheel.event_process.firing import Firing
from tickwheel.event_process.inbox import Entry, Unfiled, id_after, to_file
from tickwheel.event_process.levels import LOWEST, RADIX, is_near, name, parse
from tickwheel.event_process.memory import Memory
from tickwheel.event_process.portion import Portion
from tickwheel.event_process.queues import Queues
from tickwheel.event_process.slots import Slot, Slots
from tickwheel.event_process.stats import WheelStats
from tickwheel.scripts import bind, load
from tickwheel.timers import Kind, split

# Timers moved by one command of each duty: a millisecond or two of the server's time or of ours.
READ_TIMERS: Final = 2_000
FILE_TIMERS: Final = 2_000
CASCADE_TIMERS: Final = 1_000
# Calls of each duty in a turn. Promotion has its share before each of the other duties.
PROMOTE_CALLS, EXPIRE_CALLS, RETIRE_CALLS, DROP_CALLS = 4, 4, 2, 8
# With so many timers in memory no more slots are read, and above the second, new timers wait in their slots, too.
MEMORY_TIMERS_FROM_SLOTS: Final = 500_000
MEMORY_TIMERS: Final = 1_000_000
# With so many timers read and not filed, filing comes before reading more of the inbox.
UNFILED_TIMERS: Final = 100_000
SLOT_NAMES: Final = 1_000

_FENCE = Struct(">QQ")


class ShardDriver:
    """Drives one shard under one fence, until somebody newer does (`Fenced`)."""

    def __init__(
        self,
        namespace: str,
        shard: int,
        *,
        epoch: int | None,
        connection: int,
        election: str,
        queues: Queues,
        clock: Clock,
        stats: WheelStats,
        clock_fragment: str = "_clock",
    ) -> None:
        """``epoch`` None takes the one after the shard's; ``clock_fragment`` is another in tests only."""
        self.epoch = epoch
        self._namespace = namespace
        self._shard = shard
        self._connection = connection
        self._election = election
        self._queues = queues
        self._clock = clock
        self._stats = stats
        self._fragment = clock_fragment
        self._keys = {name: keys.shard_key(namespace, shard, name) for name in keys.SHARD_KEYS}
        self._file, self._cascade, self._drop_slot, self._claim = (
            load(script, clock_fragment) for script in ("file", "cascade", "drop_slot", "claim")
        )
        self._inbox_portion = Portion(READ_TIMERS)
        self._slot_portion = Portion(READ_TIMERS)
        self._slots = Slots()
        self._unfiled = Unfiled()

    def run(self) -> Steps:
        """Claim the shard, take its wheel over, and turn it for ever."""
        yield from self.claim()
        yield from self.take_over()
        while True:
            busy = yield from self.turn()
            if not busy:
                yield from self.read_inbox(until_ms=self.next_wake())

    def claim(self) -> Steps:
        """Make this driver's fence the shard's."""
        if self.epoch is None:
            held = yield ReadFence(self._keys["clock"])
            self.epoch = _FENCE.unpack(held)[0] + 1 if held else 1
        self._fence = _FENCE.pack(self.epoch, self._connection)
        now, high = yield from self._ask(bind(self._claim, self._keys, [self._fence, self._election]))
        self._clock.claimed(int(now), int(high) if high else None)
        self._stats.epoch = self.epoch
        self._stats.claims += 1

    def take_over(self) -> Steps:
        """Start with nothing in memory: all slots are there to be read, the inbox from its start."""
        self._memory = Memory(self._clock.now())
        self._firing = Firing(
            self._namespace,
            self._shard,
            fence=self._fence,
            queues=self._queues,
            clock=self._clock,
            memory=self._memory,
            unfiled=self._unfiled,
            stats=self._stats,
            clock_fragment=self._fragment,
        )
        first = 0
        while True:
            names = yield ReadSlots(self._keys["slots"], first, SLOT_NAMES)
            for slot_name in names:
                self._slots.touch(*parse(slot_name), length=None)
            first += len(names)
            if len(names) < SLOT_NAMES:
                return

    def turn(self) -> Duty:
        """A bounded share of every duty; whether there was anything to do."""
        fire, busy = self._firing.fire, False
        for duty in (
            self.read_inbox(),
            self.file(),
            self.serve_slot(),
            self.drop_slots(),
            fire(Kind.EXPIRE, EXPIRE_CALLS),
            fire(Kind.RETIRE, RETIRE_CALLS),
        ):
            promoted = yield from fire(Kind.PROMOTE, PROMOTE_CALLS)
            done = yield from duty
            busy = busy or promoted or done
        self._stats.in_memory = self._memory.count
        self._stats.unfiled = self._unfiled.count
        self._stats.slots = len(self._slots)
        return busy

    def next_wake(self) -> float:
        """When there is something to do again without news from the inbox, on the monotonic clock."""
        expiries = [near.next_expiry() for near in self._memory.near.values()]
        moments = [self._unfiled.next_rotation(), self._clock.next_look(self._memory.count > 0)]
        for time_ms in (*expiries, self._slots.next_start(self._lowest_to_serve())):
            if time_ms is not None:
                moments.append(self._clock.when(time_ms))
        return min((moment for moment in moments if moment is not None), default=inf)

    def read_inbox(self, until_ms: float | None = None) -> Duty:
        """Read new timers; near ones into memory. ``until_ms``: wait for some until then."""
        if self._unfiled.count >= UNFILED_TIMERS:
            return False
        count = self._inbox_portion.count
        after = self._unfiled.read_up_to
        entries = yield ReadInbox(self._keys["inbox"], after, count, until_ms)
        timers = 0
        for entry_id, packed in entries:
            entry = self._admit(entry_id, packed)
            self._unfiled.add(entry, self._clock.monotonic())
            timers += entry.count
        self._inbox_portion.took(len(entries), timers)
        self._stats.inbox_timers += timers
        return bool(entries)

    def file(self) -> Duty:
        """File the next prefix of what was read, and cut it from the inbox; with nothing to file, maybe ask the time."""
        self._unfiled.rotate(self._clock.monotonic())
        prefix = self._unfiled.prefix(FILE_TIMERS)
        if prefix:
            yield from self._file_prefix(prefix)
        elif self._clock.wants_look(self._memory.count > 0):
            now, *_ = yield from self._ask(bind(self._file, self._keys, [self._fence, b""]))
            self._clock.observe(now)
        return bool(prefix)

    def serve_slot(self) -> Duty:
        """Cascade or read a piece of the slot that is next."""
        slot = self._slots.next_to_serve(self._clock.now(), self._lowest_to_serve())
        if slot is None:
            return False
        if slot.level > LOWEST:
            yield from self._cascade_slot(slot)
        else:
            yield from self._read_slot(slot)
        return True

    def drop_slots(self) -> Duty:
        """Drop slots that were read to their end and have no open timer."""
        dropped = False
        for _ in range(DROP_CALLS):
            slot = self._next_to_drop()
            if slot is None:
                break
            call = bind(
                self._drop_slot,
                self._keys | {"slot": self._slot_key(slot.level, slot.number)},
                [self._fence, name(slot.level, slot.number), slot.position],
            )
            left = yield from self._ask(call)
            if left:
                self._slots.touch(slot.level, slot.number, left)
            else:
                self._slots.gone(slot)
            dropped = True
        return dropped

    def _admit(self, entry_id: bytes, packed: bytes) -> Entry:
        now = self._clock.now()
        near: list[bytes] = []
        far: list[bytes] = []
        for time_ms, _, kind, timer in split(packed):
            if is_near(time_ms, now) and self._memory.count < MEMORY_TIMERS:
                self._memory.hold_one(time_ms, kind, timer)
                near.append(timer)
            else:
                far.append(timer)
        return Entry(entry_id, b"".join(far), near, len(near) + len(far))

    def _file_prefix(self, prefix: list[Entry]) -> Steps:
        filing = Filing()
        filing.add(self._to_file(prefix), self._clock.now())
        args = [self._fence, self._cut_before(prefix), *filing.arguments()]
        lists = [self._slot_key(*slot) for slot in filing.slots]
        now, *lengths = yield from self._ask(bind(self._file, self._keys, args, lists))
        self._clock.observe(now)
        chunks = filing.chunk_counts()
        for (slot, timers), length, pushed in zip(filing.slots.items(), lengths, chunks, strict=True):
            self._pushed(*slot, timers, length, pushed)
            self._stats.filed_timers += len(timers)
        self._unfiled.filed(prefix)

    def _to_file(self, prefix: list[Entry]) -> list[bytes]:
        """Near timers, too, where they are not answered: they must outlive the process."""
        return list(to_file(prefix, self._unfiled.unanswered))

    def _cut_before(self, prefix: list[Entry]) -> bytes:
        """Exactly the prefix goes from the inbox."""
        return id_after(prefix[-1].id)

    def _pushed(self, level: int, number: int, timers: list[bytes], length: int, chunks: int) -> None:
        """A slot has grown by these. Its position passes them if they, and all before them, are in memory."""
        if level > LOWEST:
            self._slots.touch(level, number, None)
            return
        known = self._slots.get(level, number)
        position = known.position if known else 0
        slot = self._slots.touch(level, number, length)
        if position != length - chunks or not is_near(number << 12, self._clock.now()):
            return
        missing = [timer for timer in timers if timer not in self._unfiled.unanswered]
        if self._memory.count + len(missing) <= MEMORY_TIMERS:
            self._memory.hold(b"".join(missing))
            slot.position = length

    def _read_slot(self, slot: Slot) -> Steps:
        count = self._slot_portion.count
        chunks = yield ReadSlot(self._slot_key(slot.level, slot.number), slot.position, count)
        timers = sum(self._memory.hold(chunk) for chunk in chunks)
        self._slot_portion.took(len(chunks), timers)
        slot.position += len(chunks)
        if len(chunks) < count:
            slot.length = slot.position
        if slot.read_to_end and not self._memory.is_open(slot.number):
            self._memory.quiet.add(slot.number)

    def _cascade_slot(self, slot: Slot) -> Steps:
        below, first = slot.level - 1, slot.number * RADIX
        call = bind(
            self._cascade,
            self._keys | {"slot": self._slot_key(slot.level, slot.number)},
            [self._fence, slot.level, slot.number, CASCADE_TIMERS, CHUNK_TIMERS],
            [self._slot_key(below, first + place) for place in range(RADIX)],
        )
        left, *children = yield from self._ask(call)
        for place, length in zip(children[::2], children[1::2], strict=True):
            self._slots.touch(below, first + place, length if below == LOWEST else None)
        if left == 0:
            self._slots.gone(slot)

    def _next_to_drop(self) -> Slot | None:
        quiet = self._memory.quiet
        while quiet:
            number = quiet.pop()
            slot = self._slots.get(LOWEST, number)
            if slot is not None and slot.read_to_end and not self._memory.is_open(number):
                return slot
        return None

    def _lowest_to_serve(self) -> int:
        return LOWEST if self._memory.count < MEMORY_TIMERS_FROM_SLOTS else LOWEST + 1

    def _slot_key(self, level: int, number: int) -> str:
        return keys.slot_key(self._namespace, self._shard, level, number)

    def _ask(self, command: Command) -> "Any":
        """A call of one of the wheel's own scripts."""
        try:
            return (yield command)
        except Refused as refusal:
            if refusal.code == "FENCED":
                raise Fenced(f"shard {self._shard}: {refusal}") from refusal
            raise TickwheelError(f"shard {self._shard}: the wheel was refused: {refusal}") from refusal
