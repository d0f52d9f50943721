"""Fires the schedules of an app, in each of its worker processes: whoever takes an occurrence sees to it, so that there
is no leader to elect or to lose.

An occurrence is seen to in three steps: enqueue the task's message, enqueue the next occurrence, complete this one.
Whoever dies between two of them leaves it to another, who does them again; their ids make that harmless.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from tickwheel.client import Message
from tickwheel.errors import IdConflict, LeaseLost, MessageNotFound, QueueBlocked, QueueNotFound, TickwheelError
from tickwheel.model.message import MessageView
from tickwheel.runtime.log_fields import log_fields
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.runner import truncate_utf8
from tickwheel.tasks.schedule import Occurrence, Schedule

_log = logging.getLogger("tickwheel.worker")
_BATCH: Final = 10
# The longest that a process which dies makes its occurrence late. One that lives takes milliseconds.
_LEASE: Final = timedelta(seconds=5)
# How long a call waits at most: so soon it hears that it is to stop.
_SLICE: Final = timedelta(seconds=1)
_SECOND: Final = timedelta(seconds=1)
_PAUSE_S: Final = 5.0
# A queue that was lost, or an occurrence that somebody cancelled, is missed no longer.
_ENSURE_S: Final = 60.0
# While an app is replaced by another version, occurrences of both are there, and workers of both.
_UNKNOWN_PAUSE: Final = timedelta(seconds=2)
_UNKNOWN_MAX: Final = timedelta(minutes=10)
# So many occurrences that were cancelled, one after the other, do not hide the firing before them.
_MAX_LOOK_BACK: Final = 8
_FINISHED: Final = ("completed", "cancelled", "errored")


class OccurrenceOutcome(StrEnum):
    """What became of an occurrence."""

    FIRED = "fired"
    SKIPPED = "skipped"  # the firing before is not finished
    MISSED = "missed"
    UNKNOWN = "unknown"  # no worker has such a schedule any more


class PreviousOccurrencePending(TickwheelError):
    """The occurrence before is still to be seen to."""


class OccurrenceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result that an occurrence is completed with; ``last`` as in the next one."""

    fate: OccurrenceOutcome
    last: datetime | None = None


_OCCURRENCES = msgspec.json.Decoder(Occurrence)
_RECORDS = msgspec.json.Decoder(OccurrenceRecord)


class ScheduleRunner:
    """`start` it in a process that works for the app, and `close` it. ``told`` hears of the fate of each occurrence."""

    def __init__(
        self,
        app: TaskApp,
        worker: str | None = None,
        on_outcome: Callable[[str, OccurrenceOutcome], None] = lambda name, fate: None,
    ) -> None:
        self._app = app
        self._worker = worker
        self._on_outcome = on_outcome
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tickwheel-schedules", daemon=True)

    def start(self) -> None:
        """In a thread of its own, where the app has schedules at all."""
        if self._app.schedules:
            self._thread.start()

    def close(self) -> None:
        """Once what it has taken is seen to."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def ensure_occurrences(self, now: datetime) -> None:
        """Have the first occurrence after now of every schedule enqueued, where that has not been done.

        What is overdue comes first: it knows the firing before, which must be finished, and that goes from one
        occurrence to the next.
        """
        if not self._app.schedules:
            return
        while self.fire_due() and not self._stopping.is_set():
            pass
        new = [schedule.occurrence(schedule.next(now)) for schedule in self._app.schedules.values()]
        with suppress(IdConflict):
            # In conflict with those that know a firing before; all others are enqueued.
            self._app.declared(self._app.schedule_queue).enqueue_many(new)

    def fire_due(self, wait: timedelta | None = None) -> int:
        """See to some of what is due; how many that was. ``wait`` is how long to sleep for the first."""
        queue = self._app.declared(self._app.schedule_queue)
        messages = queue.dequeue(_BATCH, lease=_LEASE, wait=wait, worker=self._worker)
        for message in messages:
            self.handle(message)
        return len(messages)

    def handle(self, message: Message) -> None:
        """An occurrence, whose lease this process has, or had: somebody else may have seen to it, too."""
        try:
            self._handle(message)
        except LeaseLost:
            pass
        except PreviousOccurrencePending as error:
            with suppress(LeaseLost):
                message.fail(str(error))
        except Exception as error:
            extra, trace = log_fields("schedule failed", message), not isinstance(error, TickwheelError)
            _log.error("schedules: %s: %s", message.id, error, exc_info=trace, extra=extra)
            with suppress(LeaseLost):
                message.fail(truncate_utf8(str(error)))

    def _run(self) -> None:
        ensured_at = -_ENSURE_S
        while not self._stopping.is_set():
            try:
                if time.monotonic() - ensured_at > _ENSURE_S:
                    self.ensure_occurrences(datetime.now(UTC))
                    ensured_at = time.monotonic()
                self.fire_due(_SLICE)
            except QueueBlocked:
                # So an operator stops all schedules.
                self._stopping.wait(_PAUSE_S)
            except Exception as error:
                extra, trace = log_fields("schedules failed"), not isinstance(error, TickwheelError)
                _log.error("no schedules are seen to: %s", error, exc_info=trace, extra=extra)
                self._stopping.wait(_PAUSE_S)

    def _handle(self, message: Message) -> None:
        # By the server's clock, which has made it due.
        now = message.lease_until - _LEASE
        try:
            occurrence = _OCCURRENCES.decode(message.payload)
        except msgspec.DecodeError as error:
            message.fail(f"this is no occurrence of a schedule: {error}", final=True)
            return
        schedule = self._app.schedules.get(occurrence.schedule)
        if schedule is not None and schedule.times.text == occurrence.times:
            record = self._fire(schedule, occurrence, now)
        elif now - occurrence.at < _UNKNOWN_MAX:
            message.fail(f"this worker's app has no schedule {occurrence.schedule!r} of these times", _UNKNOWN_PAUSE)
            return
        else:
            extra = log_fields("schedule unknown", message, schedule=occurrence.schedule)
            _log.warning(
                "schedule %r was changed or removed: %s does not fire", occurrence.schedule, message.id, extra=extra
            )
            record = OccurrenceRecord(OccurrenceOutcome.UNKNOWN)
        message.complete(msgspec.json.encode(record).decode())
        self._on_outcome(occurrence.schedule, record.fate)

    def _fire(self, schedule: Schedule, occurrence: Occurrence, now: datetime) -> OccurrenceRecord:
        """The firing and the next occurrence."""
        at, outcome = occurrence.at, OccurrenceOutcome.MISSED
        fires, following = schedule.decide(at, now)
        last = None if schedule.overlap else self._previous_firing(schedule, occurrence)
        if fires and last is not None and self._is_unfinished(schedule, last):
            outcome = OccurrenceOutcome.SKIPPED
            extra = log_fields("schedule skipped", schedule=schedule.name, at=at.isoformat())
            _log.info("schedule %r: %s is skipped: that of %s is not finished", schedule.name, at, last, extra=extra)
        elif fires:
            outcome = OccurrenceOutcome.FIRED
            with suppress(IdConflict):
                # Another version of the app, which calls it by other arguments, has fired it.
                self._app.enqueue(schedule.call.task, schedule.firing(at))
            last = None if schedule.overlap else at
        else:
            extra = log_fields("schedule missed", schedule=schedule.name, at=at.isoformat())
            _log.warning("schedule %r: %s is left out: it is %s too late", schedule.name, at, now - at, extra=extra)
        with suppress(IdConflict):
            # Somebody who knew less of the firing before has made it: it finds that in our note.
            self._app.declared(self._app.schedule_queue).enqueue_many([schedule.occurrence(following, last)])
        return OccurrenceRecord(outcome, last)

    def _previous_firing(self, schedule: Schedule, occurrence: Occurrence) -> datetime | None:
        """The firing before this occurrence.

        As the note of the occurrence before says, which is there wherever that was seen to: who enqueued this one may
        have died before it had fired, or may not have known. After times that were left out it is the one who knows.
        """
        before = at = schedule.times.last_until(occurrence.at - _SECOND)
        for _ in range(_MAX_LOOK_BACK):
            message = self._find(self._app.schedule_queue, schedule.occurrence_id(at), schedule.name)
            if message is None:
                break
            if message.state not in _FINISHED:
                raise PreviousOccurrencePending(f"occurrence {message.id!r}, which comes before, is {message.state}")
            if message.result is not None:
                return _RECORDS.decode(message.result).last
            at = schedule.times.last_until(at - _SECOND)
        return before if occurrence.last is None else occurrence.last

    def _is_unfinished(self, schedule: Schedule, last: datetime) -> bool:
        firing, name = schedule.firing(last), schedule.call.task.queue
        # Messages of an exclusive queue have metadata.
        key = self._app.declared(name).config().exclusive_key if firing.metadata else None
        value = firing.metadata[key] if firing.metadata and key else None
        message = self._find(name, schedule.firing_id(last), value)
        return message is not None and message.state not in _FINISHED

    def _find(self, queue: str, id: str, exclusive_value: str | None = None) -> MessageView | None:
        try:
            return self._app.tickwheel.queue(queue).get(id, exclusive_value)
        except (MessageNotFound, QueueNotFound):
            return None
