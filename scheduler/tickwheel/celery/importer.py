"""Moves the messages that wait in Celery's Redis to Tickwheel: `tickwheel import celery`.

Three steps move a message: take it from Celery's queue (`source_queue`), enqueue it under its id in Celery, acknowledge
it. An import that was interrupted is simply run again: it enqueues the messages that were taken and not acknowledged
once more, which changes nothing if they were enqueued before. Messages that cannot be moved stay in Celery and are
listed in the report.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from itertools import chain

from tickwheel import limits
from tickwheel.celery.source_queue import CeleryQueue, CeleryQueueItem
from tickwheel.client import Queue
from tickwheel.errors import IdConflict, InvalidArgument
from tickwheel.model.message import NewMessage


@dataclass(frozen=True, slots=True)
class SkippedMessage:
    """A message that stays in Celery, and the reason."""

    id: str
    task: str
    reason: str


@dataclass(slots=True)
class Report:
    """The result of the import of one queue."""

    queue: str
    moved: int = 0
    there_before: int = 0
    """Messages that Tickwheel already had, from an interrupted import or as another copy of the same call."""
    refused: list[SkippedMessage] = field(default_factory=list)


class Importer:
    """Moves the messages of one Celery queue to one Tickwheel queue."""

    def __init__(
        self,
        source: CeleryQueue,
        queue: Queue,
        timezone: tzinfo,
        *,
        max_attempts: int | None = None,
        payload_limit: int = limits.PAYLOAD_BYTES_MAX,
    ) -> None:
        """``timezone`` applies to ETAs without a time zone. ``payload_limit`` is that of the queue, in bytes."""
        self._source = source
        self._queue = queue
        self._timezone = timezone
        self._max_attempts = max_attempts
        self._payload_limit = payload_limit
        self.report = Report(source.queue)

    def run(self, *, unacked: bool = False) -> Report:
        """Move all messages that can be moved, and return the report.

        With ``unacked``, also move messages that workers have taken and not acknowledged; no worker may be running.
        """
        for page in self._pages(unacked):
            movable = []
            for item in page:
                if self._may_move(item):
                    movable.append(item)
                elif self._source.is_held(item):
                    self._source.requeue(item)
            self._move(movable)
        return self.report

    def dry_run(self, *, unacked: bool = False) -> Report:
        """Return the report that `run` would return. Move nothing."""
        for page in self._pages(unacked):
            self.report.moved += sum(self._may_move(item) for item in page)
        return self.report

    def _pages(self, unacked: bool) -> Iterator[list[CeleryQueueItem]]:
        return chain(
            [self._source.held_items()], self._source.listed_items(), self._source.unacked_items() if unacked else ()
        )

    def _may_move(self, item: CeleryQueueItem) -> bool:
        reason = item.refusal
        if reason is None:
            try:
                size = len(self._message(item).payload)
                if size > self._payload_limit:
                    reason = f"it has {size:,} bytes, and the queue allows {self._payload_limit:,}"
            except InvalidArgument as error:
                reason = str(error)
        if reason is not None:
            self._skip(item, reason)
        return reason is None

    def _message(self, item: CeleryQueueItem) -> NewMessage:
        return item.call.to_new_message(self._timezone, self._max_attempts)

    def _move(self, page: Sequence[CeleryQueueItem]) -> None:
        taken = self._source.take(page)
        # A call may be in the queue twice. Celery would run it twice; here both copies are one message.
        new = {item.call.id: item for item in taken}
        conflicting: set[str] = set()
        try:
            results = self._queue.enqueue_many(self._message(item) for item in new.values())
        except IdConflict as error:
            conflicting = {id_ for id_, result in zip(new, error.results, strict=True) if result is None}
            results = [result for result in error.results if result is not None]
        for item in taken:
            if item.call.id in conflicting:
                self._skip(item, "Tickwheel has another message with this id")
                self._source.requeue(item)
        self._source.acknowledge([item for item in taken if item.call.id not in conflicting])
        created = sum(result.created for result in results)
        self.report.moved += created
        self.report.there_before += len(taken) - created - sum(item.call.id in conflicting for item in taken)

    def _skip(self, item: CeleryQueueItem, reason: str) -> None:
        self.report.refused.append(SkippedMessage(item.call.id, item.call.task, reason))
