"""Fires the schedules of an app, in every worker process.

No leader is needed: the worker that leases an occurrence handles it, in three steps: enqueue the task's message,
enqueue the next occurrence, complete this one. If a worker dies in between, another one repeats the steps; fixed
message ids make them idempotent.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from tickwheel import limits
from tickwheel.client import Message
from tickwheel.errors import (
    IdConflict,
    LeaseLost,
    MessageNotFound,
    NotDurable,
    QueueBlocked,
    QueueNotFound,
    TickwheelError,
    Unavailable,
)
from tickwheel.model.message import MessageView
from tickwheel.model.state_machine import FINAL
from tickwheel.model.validation import preview
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.runtime.log_fields import log_fields
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.runner import truncate_utf8
from tickwheel.tasks.schedule import Occurrence, Schedule
from tickwheel.worker.namespace_loss import NAMESPACE_ERRORS
from tickwheel.worker.stats import UNKNOWN

_log = logging.getLogger("tickwheel.worker")
_BATCH: Final = 10
# The lease of an occurrence. If its worker dies, another worker can handle the occurrence after this time. A live
# worker needs milliseconds.
_LEASE: Final = timedelta(seconds=5)
# The maximum wait of one dequeue call, so that the runner notices a stop request in time.
_SLICE: Final = timedelta(seconds=1)
_SECOND: Final = timedelta(seconds=1)
_PAUSE_S: Final = 5.0
# How often to check that every schedule has an occurrence. A lost queue, or an occurrence that was cancelled, is
# replaced after at most this time.
_ENSURE_S: Final = 60.0
# During a deployment, occurrences and workers of the old and of the new version exist at the same time. So an
# occurrence of an unknown schedule is retried every `_UNKNOWN_PAUSE`, until it is `_UNKNOWN_MAX` late.
_UNKNOWN_PAUSE: Final = timedelta(seconds=2)
_UNKNOWN_MAX: Final = timedelta(minutes=10)
# The search for the latest firing skips at most this number of occurrences without a result (cancelled or errored).
_MAX_LOOK_BACK: Final = 8
# No worker enqueues an occurrence further ahead. An occurrence that is as late is forged, or `missed="all"` would fire
# too many times.
_MAX_DISTANCE: Final = timedelta(milliseconds=limits.DELAY_MS_MAX)
_FINISHED: Final = frozenset(state.label for state in FINAL)


class OccurrenceOutcome(StrEnum):
    """The outcome of an occurrence."""

    FIRED = "fired"
    SKIPPED = "skipped"  # the previous firing is not finished
    MISSED = "missed"
    UNKNOWN = "unknown"  # no worker has this schedule any more


class PreviousOccurrencePending(TickwheelError):
    """The previous occurrence has not been handled yet."""


class OccurrenceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a completed occurrence.

    If the schedule allows no overlap, ``last`` is the time of its latest firing so far.
    """

    fate: OccurrenceOutcome
    last: datetime | None = None


_OCCURRENCES = msgspec.json.Decoder(Occurrence)
_RECORDS = msgspec.json.Decoder(OccurrenceRecord)


class ScheduleRunner:
    """Fires the schedules of an app, in its own thread from `start` to `close`.

    If the app moves to another namespace, its schedules stay in the namespace that the app has now.

    ``on_outcome`` is called with the name of the schedule and the outcome of each occurrence. If the app has no such
    schedule, the name is `stats.UNKNOWN`. ``on_namespace_loss`` is called if the namespace is gone; the thread ends.
    """

    def __init__(
        self,
        app: TaskApp,
        worker: str | None = None,
        on_outcome: Callable[[str, OccurrenceOutcome], None] = lambda name, fate: None,
        on_namespace_loss: Callable[[TickwheelError], None] = lambda error: None,
        is_worker_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app = app
        # A task can move the app to another namespace. The schedules stay here.
        self._clients = app._clients.current
        self._worker = worker
        self._on_outcome = on_outcome
        self._on_namespace_loss = on_namespace_loss
        self._is_worker_stopping = is_worker_stopping
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tickwheel-schedules", daemon=True)

    def start(self) -> None:
        """Start the thread if the app has schedules."""
        if self._app.schedules:
            self._thread.start()

    def close(self) -> None:
        """Stop the thread, once the occurrences that were taken are handled or released."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _is_stopping(self) -> bool:
        return self._stopping.is_set() or self._is_worker_stopping()

    def ensure_occurrences(self, now: datetime) -> None:
        """For each schedule, enqueue its first occurrence after ``now``, unless this occurrence exists.

        Due occurrences are handled first. A worker that handles an occurrence also enqueues the next one, with the time
        of the latest firing (`Occurrence.last`). An occurrence that this method enqueues lacks `last`.
        """
        if not self._app.schedules:
            return
        # The queue may have been deleted. Without this call, the client would create a queue with other settings.
        # Occurrences on other shards still fire if the metadata shard does not answer.
        with suppress(Unavailable, NotDurable):
            self._clients.refresh_queue(self._app.schedule_queue)
        while self.fire_due() and not self._is_stopping():
            pass
        self._enqueue_occurrences([(schedule, schedule.next(now), None) for schedule in self._app.schedules.values()])

    def fire_due(self, wait: timedelta | None = None) -> int:
        """Handle at most 10 due occurrences. Return how many were leased. ``wait`` limits the wait for the first."""
        queue = self._clients.ensure_queue(self._app.schedule_queue)
        options = DequeueOptions.parse(_BATCH, None, _LEASE, wait, self._worker)
        messages = self._clients.client()._dequeue(queue.name, options, self._is_stopping)
        for n, message in enumerate(messages):
            if self._is_stopping():
                with suppress(LeaseLost):
                    queue.release_many(messages[n:])
                break
            self.handle(message)
        return len(messages)

    def handle(self, message: Message) -> None:
        """Handle a leased occurrence. If its lease was lost, another worker may handle it, too."""
        try:
            self._handle(message)
        except LeaseLost:
            pass
        except PreviousOccurrencePending as error:
            with suppress(LeaseLost):
                message.fail(str(error))
        except NAMESPACE_ERRORS:
            raise
        except Exception as error:
            extra, trace = log_fields("schedule failed", message), not isinstance(error, TickwheelError)
            _log.error("occurrence %s failed, retrying: %s", message.id, error, exc_info=trace, extra=extra)
            with suppress(LeaseLost):
                message.fail(truncate_utf8(str(error)))

    def _run(self) -> None:
        ensured_at = -_ENSURE_S
        while not self._is_stopping():
            try:
                if time.monotonic() - ensured_at > _ENSURE_S:
                    self.ensure_occurrences(datetime.now(UTC))
                    ensured_at = time.monotonic()
                self.fire_due(_SLICE)
            except QueueBlocked:
                # An operator can block the queue to stop all schedules.
                self._stopping.wait(_PAUSE_S)
            except NAMESPACE_ERRORS as error:
                self._on_namespace_loss(error)
                return
            except Exception as error:
                if self._is_stopping() and isinstance(error, Unavailable):
                    # The stop may have ended the call.
                    return
                extra, trace = log_fields("schedules failed"), not isinstance(error, TickwheelError)
                _log.error("cannot handle schedules, retrying: %s", error, exc_info=trace, extra=extra)
                self._stopping.wait(_PAUSE_S)

    def _handle(self, message: Message) -> None:
        # The time at which the server delivered the occurrence, by the server's clock.
        now = message.lease_until - _LEASE
        try:
            occurrence = _OCCURRENCES.decode(message.payload)
        except (msgspec.DecodeError, RecursionError) as error:
            message.fail(f"the payload is not an occurrence of a schedule: {error}", final=True)
            return
        if (
            abs(now - occurrence.at) > _MAX_DISTANCE
            or message.id != occurrence.id
            or message.exclusive_value != occurrence.schedule
        ):
            # No worker has enqueued this message.
            message.fail(
                "the id, the exclusive value or the time of the message is not that of an occurrence of schedule"
                f" {preview(occurrence.schedule)}",
                final=True,
            )
            return
        schedule = self._app.schedules.get(occurrence.schedule)
        if schedule is not None and schedule.times.text == occurrence.times:
            record = self._fire(schedule, occurrence, now)
        elif now - occurrence.at < _UNKNOWN_MAX:
            message.fail(f"this worker's app has no schedule {occurrence.schedule!r} with these times", _UNKNOWN_PAUSE)
            return
        else:
            extra = log_fields("schedule unknown", message, schedule=occurrence.schedule)
            _log.warning(
                "schedule %r was changed or removed: %s does not fire", occurrence.schedule, message.id, extra=extra
            )
            record = OccurrenceRecord(OccurrenceOutcome.UNKNOWN)
        message.complete(msgspec.json.encode(record).decode())
        # An occurrence can contain any name. One label for all unknown names keeps the number of labels small.
        self._on_outcome(UNKNOWN if schedule is None else schedule.name, record.fate)

    def _fire(self, schedule: Schedule, occurrence: Occurrence, now: datetime) -> OccurrenceRecord:
        """Enqueue the firing, if the schedule fires, and the next occurrence. Return the record of this occurrence."""
        at, outcome = occurrence.at, OccurrenceOutcome.MISSED
        fires, following = schedule.decide(at, now)
        last = None if schedule.overlap else self._previous_firing(schedule, occurrence)
        if fires and last is not None and self._is_unfinished(schedule, last):
            outcome = OccurrenceOutcome.SKIPPED
            extra = log_fields("schedule skipped", schedule=schedule.name, time=at.isoformat())
            _log.info(
                "schedule %r: %s is skipped: the firing of %s is not finished", schedule.name, at, last, extra=extra
            )
        elif fires:
            outcome = OccurrenceOutcome.FIRED
            try:
                self._clients.enqueue(schedule.call.task.queue, schedule.firing(at))
            except IdConflict:
                # Another version of the app, which calls the task with other arguments, has enqueued this firing. Or
                # another program has used its id.
                _log.warning(
                    "schedule %r: queue %r has another message with the id of the firing of %s, which does not fire",
                    schedule.name, schedule.call.task.queue, at, extra=_conflict_fields(schedule, at),
                )  # fmt: skip
            last = None if schedule.overlap else at
        else:
            extra = log_fields("schedule missed", schedule=schedule.name, time=at.isoformat())
            _log.warning(
                "schedule %r: %s is missed and does not fire: it is %s late", schedule.name, at, now - at, extra=extra
            )
        self._enqueue_occurrences([(schedule, following, last)])
        return OccurrenceRecord(outcome, last)

    def _enqueue_occurrences(self, new: Sequence[tuple[Schedule, datetime, datetime | None]]) -> None:
        """Enqueue occurrences that do not exist: for each schedule, a time, and the time of its latest firing or None.

        If an occurrence exists with another `Occurrence.last`, it stays as it is: the worker that handles the
        occurrence reads the right time from the result of the previous occurrence (`_previous_firing`).
        """
        try:
            self._clients.ensure_queue(self._app.schedule_queue).enqueue_many(
                [schedule.occurrence(at, last) for schedule, at, last in new]
            )
        except IdConflict as error:
            for (schedule, at, _), result in zip(new, error.results, strict=True):
                if result is None:
                    self._check_not_postponed(schedule, at)

    def _check_not_postponed(self, schedule: Schedule, at: datetime) -> None:
        """Log a warning if the occurrence for a time is due later: until then, the schedule does not fire."""
        id_ = schedule.occurrence_id(at)
        message = self._find(self._app.schedule_queue, id_, schedule.name)
        if message is not None and message.state not in _FINISHED and message.attempt == 0 and message.due > at:
            _log.warning(
                "schedule %r: the occurrence %s is due at %s only, so the schedule does not fire before; if this is not"
                " intended, cancel the occurrence", schedule.name, id_, message.due,
                extra=_conflict_fields(schedule, at),
            )  # fmt: skip

    def _previous_firing(self, schedule: Schedule, occurrence: Occurrence) -> datetime | None:
        """Return the time of the latest firing before this occurrence.

        The results of earlier occurrences have this time. If no earlier occurrence with a result is found, use ``last``
        of this occurrence. If this is not set either, use the schedule's previous time.

        ``last`` alone is not enough. `ensure_occurrences` does not set it. It is also outdated in the following case: a
        worker skips the previous occurrence, enqueues this one, and dies before it completes the previous one. Then
        another worker handles the previous occurrence again, and fires it.
        """
        before = at = schedule.times.last_until(occurrence.at - _SECOND)
        for _ in range(_MAX_LOOK_BACK):
            message = self._find(self._app.schedule_queue, schedule.occurrence_id(at), schedule.name)
            if message is None:
                break
            if message.state not in _FINISHED:
                raise PreviousOccurrencePending(f"the previous occurrence, {message.id!r}, is {message.state}")
            if message.result is not None:
                return _RECORDS.decode(message.result).last
            at = schedule.times.last_until(at - _SECOND)
        return before if occurrence.last is None else occurrence.last

    def _is_unfinished(self, schedule: Schedule, last: datetime) -> bool:
        firing, name = schedule.firing(last), schedule.call.task.queue
        # Only a message with metadata can be in an exclusive queue.
        key = self._clients.ensure_queue(name).config().exclusive_key if firing.metadata else None
        value = firing.metadata[key] if firing.metadata and key else None
        message = self._find(name, schedule.firing_id(last), value)
        return message is not None and message.state not in _FINISHED

    def _find(self, queue: str, id: str, exclusive_value: str | None = None) -> MessageView | None:
        try:
            return self._clients.client().queue(queue).get(id, exclusive_value)
        except (MessageNotFound, QueueNotFound):
            return None


def _conflict_fields(schedule: Schedule, at: datetime) -> dict[str, Any]:
    return log_fields("schedule conflict", schedule=schedule.name, time=at.isoformat())
