"""Keeps the messages of one worker process: renews their leases while it lives, and settles them when it has died.

It runs in the supervisor, so whatever a task does to its interpreter, or to its process, its leases are renewed.
"""

import logging
import math
import os
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from datetime import timedelta

from tickwheel import limits
from tickwheel.client import Message, Tickwheel
from tickwheel.errors import LeaseLost, MessageNotFound, TickwheelError, Unavailable
from tickwheel.runtime.log_fields import fields
from tickwheel.worker.ipc import Held, HeldMessage, NoteReader, Ran, Ready, Recurred
from tickwheel.worker.shared_state import Board, Page, Slot

_log = logging.getLogger("tickwheel.worker")
_TICK_S = 0.25
# Notes of batches that take next to no time are read together: a lease is a hundred times as long, and the pipe has
# room for them.
_GATHER_S = 0.01
# A lease is renewed after a third of it, and the first time no later than this: its batch may have waited for its page.
_FIRST_S = 5.0
_LEAST_LEASE_S = limits.LEASE_MS_MIN / 1_000
_MOST_LEASE_S = limits.LEASE_MS_MAX / 1_000


@dataclass(slots=True)
class _Lease:
    held: HeldMessage
    lease_s: float
    renew_at: float


@dataclass(slots=True)
class _Batch:
    number: int
    leases: list[_Lease] = field(default_factory=list)


@dataclass(slots=True)
class _Place:
    page: Page
    number: int
    slot: int
    lease: _Lease


class Keeper:
    """Reads the notes of a process until it ends, in a thread of its own. ``ran`` hears of every batch that was run."""

    def __init__(
        self,
        board: Board,
        notes_fd: int,
        ready: Callable[[Ready], Tickwheel],
        ran: Callable[[Ran], None],
        renewed: Callable[[bool], None],
        recurred: Callable[[Recurred], None],
        calls: Executor,
    ) -> None:
        """``ready`` answers with the client that leases are renewed by; ``renewed`` hears whether one was; ``recurred``
        of every occurrence of a schedule. ``calls`` has a thread for each call, of the leases of one queue: one that
        waits for a server that is away keeps no other waiting.
        """
        self._board = board
        self._fd = notes_fd
        self._notes = NoteReader(notes_fd)
        self._ready = ready
        self._ran = ran
        self._renewed = renewed
        self._recurred = recurred
        self._note: Ready | None = None
        self._tickwheel: Tickwheel | None = None
        self._batches: dict[int, _Batch] = {}
        self._queues: set[str] = set()
        self._calls = calls
        self._under_way: set[Future[None]] = set()
        self._epitaph = ""
        self._blames: Callable[[int, int], bool] = lambda page, slot: True
        # Since when leases are not renewed any more: the process has closed its end, before it had ended or as it ends.
        self.hung_up_at = math.inf
        self._dead = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tickwheel-keeper", daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether the process has its app, and takes messages."""
        return self._note is not None

    def bury(self, epitaph: str, blames: Callable[[int, int], bool]) -> None:
        """The process has ended. What it had is settled: finished tasks are completed, those not begun are given back,
        and of the ones that ran those fail, for the reason of ``epitaph``, whose page and slot ``blames`` says so of,
        while the others are given back, too. Waits until that is done.
        """
        self._epitaph, self._blames = epitaph, blames
        self._dead.set()
        self._thread.join()
        self._board.close()

    def _run(self) -> None:
        try:
            while not self._notes.ended and not self._dead.is_set():
                if self._has_notes(_TICK_S):
                    self._read()
                    time.sleep(_GATHER_S)
                self._renew()
            # Its own end may be held open, by a process that a task has left behind.
            while not self._notes.ended and self._has_notes(0):
                self._read()
        except Exception:
            _log.exception("the leases of a worker process are no longer renewed", extra=fields("mistake"))
        self.hung_up_at = time.monotonic()
        self._dead.wait()
        os.close(self._fd)
        self._settle()
        # They look at the board.
        wait([call for call in self._under_way if not call.cancel()])

    def _has_notes(self, wait_s: float) -> bool:
        return bool(select.select([self._fd], [], [], wait_s)[0])

    def _read(self) -> None:
        for note in self._notes.read():
            match note:
                case Ready():
                    self._note = note
                    try:
                        self._tickwheel = self._ready(note)
                    except TickwheelError as error:
                        # The process was there a moment ago: tried again when a lease is to be renewed.
                        _log.warning("leases cannot be renewed yet: %s", error, extra=fields("leases not renewed"))
                case Held():
                    now = time.monotonic()
                    leases = []
                    for held in note.messages:
                        lease_s = min(max(held.lease_s, _LEAST_LEASE_S), _MOST_LEASE_S)
                        # Of a new queue at once: so what a call needs is known by the time that a server is away.
                        wait_s = min(lease_s / 3, _FIRST_S) if held.queue in self._queues else 0
                        leases.append(_Lease(held, lease_s, now + wait_s))
                    self._queues.update(held.queue for held in note.messages)
                    self._batches[note.page] = _Batch(note.number, leases)
                case Ran():
                    self._ran(note)
                case Recurred():
                    self._recurred(note)

    def _renew(self) -> None:
        now = time.monotonic()
        due: dict[tuple[str, float], list[_Place]] = {}
        for index, batch in self._batches.items():
            page = self._board.pages[index]
            for slot, lease in enumerate(batch.leases):
                if now >= lease.renew_at and _is_held(page, batch.number, slot):
                    place = _Place(page, batch.number, slot, lease)
                    due.setdefault((lease.held.queue, lease.lease_s), []).append(place)
        self._under_way = {call for call in self._under_way if not call.done()}
        for (queue, lease_s), places in due.items():
            for place in places:
                place.lease.renew_at = math.inf
            self._under_way.add(self._calls.submit(self._extend, queue, lease_s, places))

    def _extend(self, queue: str, lease_s: float, places: list[_Place]) -> None:
        """Leases of one queue that are as long, by one call. In a thread of its own."""
        held = [_by_lease(place.lease.held) for place in places]
        began, lost = time.monotonic(), set()
        try:
            tickwheel = self._client()
            tickwheel.queue(queue).extend_many(tickwheel._ours(held), timedelta(seconds=lease_s))
        except LeaseLost as error:
            lost = set(map(id, error.lost))
        except Exception as error:
            text, extra = "%d leases of queue %s could not be renewed: %s", fields("leases not renewed", queue=queue)
            is_mistake = not isinstance(error, TickwheelError)
            _log.warning(text, len(held), queue, error, extra=extra, exc_info=is_mistake)
            for place in places:
                place.lease.renew_at = time.monotonic() + min(1.0, lease_s / 3)
            return
        for place, message in zip(places, held, strict=True):
            place.lease.renew_at = began + lease_s / 3
            if id(message) not in lost:
                self._renewed(True)
            # It may have been settled meanwhile, and the page be another batch's.
            elif place.page.number == place.number and place.page.state(place.slot) in (Slot.HELD, Slot.RUNNING):
                place.page.lose(place.slot)
                place.lease.renew_at = float("inf")
                self._renewed(False)

    def _client(self) -> Tickwheel:
        if self._tickwheel is None:
            assert self._note is not None
            self._tickwheel = self._ready(self._note)
        return self._tickwheel

    def _settle(self) -> None:
        try:
            self._settle_all()
        except Unavailable as error:
            # The others would find the same, each after a while, and somebody waits for us.
            _log.error("what is not settled waits for the end of its lease: %s", error, extra=fields("not told"))
        except Exception:
            _log.exception("what is not settled waits for the end of its lease", extra=fields("not told"))

    def _settle_all(self) -> None:
        for index, batch in self._batches.items():
            page = self._board.pages[index]
            for slot, lease in enumerate(batch.leases):
                if page.number == batch.number and page.is_lost(slot):
                    continue
                # Of a batch that had not begun, the page does not know.
                state = page.state(slot) if page.number == batch.number else Slot.HELD
                if page.number <= batch.number and state is not Slot.SETTLED:
                    self._settle_one(lease, state, self._blames(index, slot))

    def _settle_one(self, lease: _Lease, state: Slot, is_to_blame: bool) -> None:
        held = lease.held
        try:
            # With its metadata, for its trace.
            message = self._client().queue(held.queue).leased(held.id, held.token, held.exclusive_value)
            if state is Slot.DONE:
                message.complete()
            elif state is Slot.HELD or (state is Slot.RUNNING and not is_to_blame):
                message.release()
            elif state is Slot.FAILED:
                message.fail("failed, and its worker process ended before it had said why")
            else:
                message.fail(self._epitaph)
                extra = fields("task failed", message, attempt=message.attempt, error=self._epitaph)
                _log.error("%s/%s: %s", message.queue, message.id, self._epitaph, extra=extra)
        except (LeaseLost, MessageNotFound):
            pass
        except Unavailable:
            raise
        except TickwheelError as error:
            extra = fields("not told", held)
            _log.error("%s/%s waits for the end of its lease: %s", held.queue, held.id, error, extra=extra)


def _by_lease(held: HeldMessage) -> Message:
    name = held.queue, held.queue_number, held.id, held.exclusive_value
    return Message.by_lease(*name, held.token, held.attempt)


def _is_held(page: Page, number: int, slot: int) -> bool:
    return page.number == number and page.state(slot) is not Slot.SETTLED and not page.is_lost(slot)
