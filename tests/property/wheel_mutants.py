"""Drivers that each break the rule in their docstring. The simulation must detect each of them."""

import re
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha1
from typing import Any

from tickwheel.driver.commands import DutySteps, MoveSteps, ReadStream, Steps
from tickwheel.driver.finished_leases import FinishedLeases
from tickwheel.driver.firing import TimerFirer
from tickwheel.driver.inbox_buffer import Entry
from tickwheel.driver.loaded_timers import LoadedTimers, time_of
from tickwheel.driver.queue_lookup import QueueRef
from tickwheel.driver.shard_driver import ShardDriver
from tickwheel.driver.slots import Slot, Slots
from tickwheel.storage.scripts import Script
from tickwheel.storage.stream_id import id_after
from tickwheel.storage.timer import HEAD_BYTES, Kind


class TrimsBeforeFiling(ShardDriver):
    """Timers are filed and cut from the inbox in one step."""

    def _file_prefix(self, prefix: list[Entry]) -> Steps:
        yield from self._shard.call_fenced(self._file, [self._trim_before(prefix)])
        yield from super()._file_prefix(prefix)


class TrimsBeyondWhatWasHandled(ShardDriver):
    """Only the filed prefix of the inbox is cut."""

    def _trim_before(self, prefix: list[Entry]) -> bytes:
        return id_after(self._inbox_buffer.last_read_id)


class StartsAtTheEndOfTheInbox(ShardDriver):
    """The inbox is read from its start, never from `$`."""

    def take_over(self) -> Steps:
        yield from super().take_over()
        entries = yield ReadStream(self._shard.keys["inbox"], b"0-0", 10_000, None)
        if entries:
            self._inbox_buffer.last_read_id = entries[-1][0]


class DropsSlotsWithoutAnswers(ShardDriver):
    """A slot is dropped when everything read from it is answered."""

    def take_over(self) -> Steps:
        yield from super().take_over()
        self._loaded_timers.__class__ = _NothingIsOpen


class _NothingIsOpen(LoadedTimers):
    def is_open(self, slot_number: int) -> bool:
        return False


class FilesNoNearTimers(ShardDriver):
    """Near timers must survive the process."""

    def _timers_to_file(self, prefix: list[Entry]) -> list[bytes]:
        return [entry.far for entry in prefix if entry.far]


class TakesTheRedrivenForEnded(ShardDriver):
    """If a message is leased again after it was errored and redriven, the timer of the new lease must be filed."""

    def take_over(self) -> Steps:
        yield from super().take_over()
        self._loaded_timers.finished_leases = _OfAnyVersion()


def message_key(timer: bytes) -> bytes:
    """Return the queue's number and the name."""
    return timer[HEAD_BYTES - 2 :]


class _OfAnyVersion(FinishedLeases):
    """Ignores the version: a message that has ended once counts as ended."""

    def __init__(self) -> None:
        super().__init__()
        self._messages: set[bytes] = set()

    def on_finished(self, retention_timer: bytes) -> None:
        self._messages.add(message_key(retention_timer))

    def has(self, lease_timer: bytes) -> bool:
        return message_key(lease_timer) in self._messages


class KeepsPositions(ShardDriver):
    """A new driver reads slots from the start, because its memory has no timers yet."""

    positions: dict[tuple[str, int], int]

    def take_over(self) -> Steps:
        yield from super().take_over()
        positions = KeepsPositions.positions
        for slot in self._slots._slots.values():
            slot.position = positions.get((self._shard.slot_key(2, slot.number), slot.level), 0)

    def _read_slot(self, slot: Slot) -> MoveSteps:
        timers = yield from super()._read_slot(slot)
        KeepsPositions.positions[self._shard.slot_key(2, slot.number), slot.level] = slot.position
        return timers


KeepsPositions.positions = {}


class SkipsOwnPushes(ShardDriver):
    """The driver skips timers that it adds to a slot only if they are in memory, and all earlier timers were read."""

    def _on_pushed(self, level: int, number: int, timers: list[bytes], length: int) -> None:
        super()._on_pushed(level, number, timers, length)
        slot = self._slots.get(level, number)
        if slot is not None and level == 2:
            slot.position = length


class TrustsItsOwnClock(ShardDriver):
    """The server's clock decides what is due."""

    def take_over(self) -> Steps:
        yield from super().take_over()
        firing = self._firer
        firing._scripts = {
            kind: _edited(script, r"trusted = now, math.min\(now, bound\)", "trusted = now, bound")
            for kind, script in firing._scripts.items()
        }


class BelievesTheServer(ShardDriver):
    """A timer that is due by the server's clock is not fired beyond the bound of the clock guard."""

    def take_over(self) -> Steps:
        yield from super().take_over()
        firing = self._firer
        firing._scripts = {
            kind: _edited(script, r"trusted = now, math.min\(now, bound\)", "trusted = now, now")
            for kind, script in firing._scripts.items()
        }


class ForgetsMovedTimers(ShardDriver):
    """If the time of a timer's message has moved, the script puts the timer back in Redis."""

    def take_over(self) -> Steps:
        yield from super().take_over()
        firing = self._firer
        put_back = r"add_timer\(kind, .*fields\[n\]\)"
        firing._scripts[Kind.EXPIRE] = _edited(firing._scripts[Kind.EXPIRE], put_back, "")


class TakesEarlyForAnswered(ShardDriver):
    """A timer that is not due yet is kept in memory, and in Redis."""

    def take_over(self) -> Steps:
        yield from super().take_over()
        self._loaded_timers.__class__ = _AnswersAnything
        self._firer.__class__ = _EarlyIsFinal


class TakesSentForAnswered(ShardDriver):
    """A timer that was sent, but not answered, counts as unanswered."""

    def take_over(self) -> Steps:
        yield from super().take_over()
        self._loaded_timers.__class__ = _AnswersAnything
        self._firer.__class__ = _SentIsFinal


class _AnswersAnything(LoadedTimers):
    def on_answered(self, timers: Iterable[bytes]) -> None:
        for timer in timers:
            if self.is_open(time_of(timer) >> 12):
                super().on_answered([timer])


class _EarlyIsFinal(TimerFirer):
    def _settle(self, kind: Kind, queue_number: int, timers: list[bytes], answers: bytes) -> None:
        self._on_answered(timers)
        for timer, answer in zip(timers, answers, strict=True):
            if answer:
                self._loaded_timers.near[kind].add(time_of(timer), timer)


class _SentIsFinal(_EarlyIsFinal):
    def _fire_batch(self, kind: Kind, queue_number: int, queue: QueueRef, timers: list[bytes]) -> Steps:
        self._on_answered(timers)
        yield from super()._fire_batch(kind, queue_number, queue, timers)


class ServesSlotsWhenTheyStart(ShardDriver):
    """A slot is cascaded some time before its interval begins, not at the beginning."""

    def take_over(self) -> Steps:
        yield from super().take_over()
        self._slots.__class__ = _OnlyStarted


class _OnlyStarted(Slots):
    def next_to_serve(self, now_ms: int, lowest: int = 2) -> Slot | None:
        slot = super().next_to_serve(now_ms, lowest)
        return slot if slot is not None and slot.start_ms + 500 <= now_ms else None

    def next_start(self, lowest: int = 2) -> int | None:
        heads = [slot.start_ms + 500 for level in range(lowest, 6) if (slot := self._head(level))]
        return min(heads, default=None)


class ForgetsSlotsWhenWaiting(ShardDriver):
    """A driver without work waits at most until the next slot must be served."""

    def next_wake(self) -> float:
        slots, self._slots = self._slots, Slots()
        try:
            return super().next_wake()
        finally:
            self._slots = slots


class NeverDropsSlots(ShardDriver):
    """Slots whose timers are all answered are dropped."""

    def drop_slots(self) -> DutySteps:
        yield from ()
        return False


def _edited(script: Script, old: str, new: str) -> Script:
    source, count = re.subn(old, new, script.source)
    if count != 1:
        # No AssertionError: that would count as a detected fault.
        raise LookupError(f"{script.name}.lua has {count} times {old!r}, not once")
    return replace(script, source=source, sha=sha1(source.encode(), usedforsecurity=False).hexdigest())


MUTANTS: list[Any] = [
    TrimsBeforeFiling,
    TrimsBeyondWhatWasHandled,
    StartsAtTheEndOfTheInbox,
    DropsSlotsWithoutAnswers,
    FilesNoNearTimers,
    TakesTheRedrivenForEnded,
    KeepsPositions,
    SkipsOwnPushes,
    TrustsItsOwnClock,
    BelievesTheServer,
    ForgetsMovedTimers,
    TakesEarlyForAnswered,
    TakesSentForAnswered,
    ServesSlotsWhenTheyStart,
    ForgetsSlotsWhenWaiting,
    NeverDropsSlots,
]
