"""Moves the messages that wait in Celery's Redis to Tickwheel: `tickwheel import celery`.

The import moves a message in three steps: it takes the message from Celery's queue, enqueues the message under its
Celery id, and acknowledges the message. If an import is interrupted, run it again. The second run enqueues all messages
that the first run has taken and not acknowledged. A message that Tickwheel already has does not change. Messages that
cannot be moved stay in Celery, and the report lists them.

kombu, the messaging library of Celery, stores a queue as one list for each priority, and consumes a list from its tail.
Messages that workers have taken and not acknowledged are in a hash, with an index by time. All messages that wait in a
worker for their ETA are in this hash, too. `CeleryQueue.take` moves messages atomically to a list of held messages, and
`acknowledge` deletes them from this list. If an import is interrupted, the next import begins with this list.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

from tickwheel import limits
from tickwheel.celery.celery_message import CeleryMessage, decode_message, refused_priority
from tickwheel.client import Queue
from tickwheel.errors import IdConflict, InvalidArgument
from tickwheel.model import validation
from tickwheel.model.message import NewMessage
from tickwheel.runtime.chunks import iter_chunks
from tickwheel.runtime.foreign_data import decode_json

_HELD = "tickwheel:importing:"
_UNACKED, _UNACKED_INDEX = "unacked", "unacked_index"
# The suffixes of kombu's lists by priority. By default, kombu uses every third of them.
_PRIORITIES: Final = ("", *(f"\x06\x16{step}" for step in range(1, 10)))
_PAGE: Final = 200
# `_TAKE_LISTED` takes messages from a list, `_TAKE_UNACKED` from the hash and its index. If a message is still where it
# was read, both move it to the list of held messages. `_REQUEUE` returns a held message to its queue.
_TAKE_LISTED: Final = """
local taken = {}
for n = 1, #ARGV do
    taken[n] = redis.call('LREM', KEYS[1], -1, ARGV[n])
    if taken[n] > 0 then redis.call('RPUSH', KEYS[2], ARGV[n]) end
end
return taken
"""
_TAKE_UNACKED: Final = """
local taken = {}
for n = 1, #ARGV, 2 do
    local there = redis.call('HGET', KEYS[1], ARGV[n]) == ARGV[n + 1]
    if there then
        redis.call('HDEL', KEYS[1], ARGV[n])
        redis.call('ZREM', KEYS[3], ARGV[n])
        redis.call('RPUSH', KEYS[2], ARGV[n + 1])
    end
    taken[#taken + 1] = there and 1 or 0
end
return taken
"""
_REQUEUE: Final = """
if redis.call('LREM', KEYS[1], 1, ARGV[1]) > 0 then redis.call('LPUSH', KEYS[2], ARGV[2]) end
"""


@dataclass(frozen=True, slots=True)
class CeleryQueueItem:
    """One message: its bytes, the key of their list or hash, their delivery tag (the field of the hash), and the call.

    ``refusal`` is the reason why the message cannot be moved, or None.
    """

    raw: bytes
    key: str
    tag: bytes | None
    call: CeleryMessage
    refusal: str | None


class CeleryQueue:
    """The messages of one Celery queue.

    ``redis`` is a client that returns bytes, and ``prefix`` is the option ``global_keyprefix`` of kombu.
    """

    def __init__(self, redis: Any, queue: str, prefix: str = "") -> None:
        self._redis = redis
        self.queue = queue
        self._key = prefix + queue
        self._held = prefix + _HELD + queue
        self._unacked, self._unacked_index = prefix + _UNACKED, prefix + _UNACKED_INDEX
        self._take_listed = redis.register_script(_TAKE_LISTED)
        self._take_unacked = redis.register_script(_TAKE_UNACKED)
        self._requeue_script = redis.register_script(_REQUEUE)
        self._taken = 0

    def held_items(self) -> list[CeleryQueueItem]:
        """Return the messages that an interrupted import has taken: at most one page."""
        return [_parse(item, self._held, None) for item in self._redis.lrange(self._held, 0, -1)]

    def listed_items(self) -> Iterator[list[CeleryQueueItem]]:
        """Return the messages in the lists, by priority and then oldest first, in pages.

        Each list is read up to its length at the start. Messages that arrive in the meantime do not prolong the loop.
        """
        for suffix in _PRIORITIES:
            key, left = self._key + suffix, 0
            more = self._redis.llen(key)
            while more > 0 and (raw := self._redis.lrange(key, -left - min(more, _PAGE), -left - 1)):
                self._taken = 0
                yield [_parse(item, key, None) for item in reversed(raw)]
                more -= len(raw)
                # Skip the messages that were not taken.
                left += len(raw) - self._taken

    def unacked_items(self) -> Iterator[list[CeleryQueueItem]]:
        """Return the messages that workers have taken from the queue and not acknowledged, in pages.

        Unreadable entries, whose queue is unknown, are among them. They cannot be moved.
        """
        items = []
        for tag, raw in self._redis.hscan_iter(self._unacked, count=_PAGE):
            queue = _queue_of(raw)
            if queue is None:
                refusal = (
                    f"the entry {tag!r:.100} of the hash {self._unacked!r} is not a message of kombu, so its queue is"
                    " unknown: remove the entry with HDEL if no queue needs it"
                )
                items.append(CeleryQueueItem(raw, self._unacked, tag, CeleryMessage({}, ""), refusal))
            elif queue == self.queue:
                items.append(_parse(raw, self._unacked, tag))
        yield from iter_chunks(items, _PAGE)

    def take(self, items: Sequence[CeleryQueueItem]) -> list[CeleryQueueItem]:
        """Move the messages of one page to the list of held messages. Return the messages that still existed."""
        if not items or self.is_held(items[0]):
            return list(items)
        if items[0].tag is None:
            keys, args = [items[0].key, self._held], [item.raw for item in items]
            taken = self._take_listed(keys=keys, args=args)
        else:
            keys = [self._unacked, self._held, self._unacked_index]
            taken = self._take_unacked(keys=keys, args=[part for item in items for part in (item.tag, item.raw)])
        taken_items = [item for item, was_there in zip(items, taken, strict=True) if was_there]
        self._taken += len(taken_items)
        return taken_items

    def acknowledge(self, items: Sequence[CeleryQueueItem]) -> None:
        """Delete held messages. Call this method only after Tickwheel has enqueued them."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for item in items:
                pipeline.lrem(self._held, 1, item.raw)
            pipeline.execute()

    def is_held(self, item: CeleryQueueItem) -> bool:
        """Return whether the message was read from the list of held messages."""
        return item.key == self._held

    def requeue(self, item: CeleryQueueItem) -> None:
        """Move a held message back to the end of its queue, with the default priority."""
        self._requeue_script(keys=[self._held, self._key], args=[item.raw, _unwrap(item.raw)])


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
    """Messages that Tickwheel already had: from an interrupted import, or because Celery had two copies of the call."""
    refused: list[SkippedMessage] = field(default_factory=list)


class Importer:
    """Moves the messages of one Celery queue to one Tickwheel queue."""

    def __init__(
        self,
        source: CeleryQueue,
        queue: Queue,
        *,
        max_attempts: int | None = None,
        payload_limit: int = limits.PAYLOAD_BYTES_MAX,
        before_move: Callable[[], object] = lambda: None,
    ) -> None:
        """``payload_limit`` is the limit of ``queue``, in bytes. ``before_move`` is called before the first messages
        are moved, and not at all if none can be moved.

        Raises InvalidArgument if no message may have ``max_attempts``.
        """
        if max_attempts is not None:
            validation.integer("max_attempts", max_attempts, 1, limits.MAX_ATTEMPTS_MAX)
        self._source = source
        self._queue = queue
        self._max_attempts = max_attempts
        self._payload_limit = payload_limit
        self._before_move = before_move
        self._has_begun = False
        self.report = Report(source.queue)

    def run(self, *, unacked: bool = False) -> Report:
        """Move all messages that can be moved, and return the report.

        With ``unacked``, also move messages that workers have taken and not acknowledged. Stop all Celery workers
        first.
        """
        for page in self._pages(unacked):
            movable = []
            for item in page:
                message = self._to_message(item)
                if message is not None:
                    movable.append((item, message))
                elif self._source.is_held(item):
                    self._source.requeue(item)
            if movable:
                self._move(movable)
        return self.report

    def dry_run(self, *, unacked: bool = False) -> Report:
        """Return a report of the messages that `run` would try to move, and of those that would stay. Move nothing."""
        for page in self._pages(unacked):
            self.report.moved += sum(self._to_message(item) is not None for item in page)
        return self.report

    def _pages(self, unacked: bool) -> Iterator[list[CeleryQueueItem]]:
        return chain(
            [self._source.held_items()], self._source.listed_items(), self._source.unacked_items() if unacked else ()
        )

    def _to_message(self, item: CeleryQueueItem) -> NewMessage | None:
        """Return the message to enqueue, or None if the item stays in Celery. The report then names the reason."""
        reason, message = item.refusal, None
        if reason is None:
            try:
                message = item.call.to_new_message(self._max_attempts)
                size = len(message.payload)
                if size > self._payload_limit:
                    reason = f"it has {size:,} bytes, and the queue allows {self._payload_limit:,}"
            except InvalidArgument as error:
                reason = str(error)
        if reason is None:
            return message
        self._skip(item, reason)
        return None

    def _move(self, page: Sequence[tuple[CeleryQueueItem, NewMessage]]) -> None:
        if not self._has_begun:
            self._before_move()
            self._has_begun = True
        # Copies of one message have the same bytes, and therefore the same conversion.
        messages = {item.raw: message for item, message in page}
        taken = self._source.take([item for item, _ in page])
        # A call may be in the queue twice. Celery would run it twice; here both copies are one message.
        new: dict[str, NewMessage] = {}
        for item in taken:
            new.setdefault(item.call.id, messages[item.raw])
        conflicting: set[str] = set()
        try:
            results = self._queue.enqueue_many(new.values())
        except IdConflict as error:
            conflicting = {id_ for id_, result in zip(new, error.results, strict=True) if result is None}
            results = [result for result in error.results if result is not None]
        moved = []
        for item in taken:
            # Celery can have different messages with one id, such as a call that runs again and the retry of this call.
            if item.call.id in conflicting or messages[item.raw] != new[item.call.id]:
                self._skip(item, "Tickwheel has another message with this id")
                self._source.requeue(item)
            else:
                moved.append(item)
        self._source.acknowledge(moved)
        created = sum(result.created for result in results)
        self.report.moved += created
        self.report.there_before += len(moved) - created

    def _skip(self, item: CeleryQueueItem, reason: str) -> None:
        self.report.refused.append(SkippedMessage(item.call.id, item.call.task, reason))


def _unwrap(raw: bytes) -> bytes:
    """Return the message without the exchange and the routing key that kombu adds to unacknowledged messages."""
    try:
        wrapped = decode_json(raw)
        return json.dumps(wrapped[0]).encode() if isinstance(wrapped, list) else raw
    except (ValueError, LookupError):
        # Another program has added the message to the list of held messages.
        return raw


def _queue_of(raw: bytes) -> str | None:
    """Return the queue of an unacknowledged message, or None if the bytes are unreadable."""
    try:
        return str(decode_message(raw)[2])
    except (ValueError, LookupError, TypeError):
        return None


def _parse(raw: bytes, key: str, tag: bytes | None) -> CeleryQueueItem:
    try:
        wrapped = decode_message(raw)
        message = wrapped[0] if isinstance(wrapped, list) else wrapped
        headers, properties = message["headers"], message["properties"]
        kind = message["content-type"]
        call = CeleryMessage(dict(headers), "", str(properties.get("reply_to") or ""))
        priority = properties.get("priority")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return CeleryQueueItem(raw, key, tag, CeleryMessage({}, ""), f"it is not a message of kombu: {error!r:.200}")
    try:
        call = replace(call, priority=int(priority or 0) or None)
    except (ValueError, TypeError, OverflowError):
        return CeleryQueueItem(raw, key, tag, call, refused_priority(priority))
    try:
        return CeleryQueueItem(raw, key, tag, *_check_movable(message, call, kind))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return CeleryQueueItem(raw, key, tag, call, f"its body is not a body of Celery's protocol 2: {error!r:.200}")


def _check_movable(message: Any, call: CeleryMessage, kind: str) -> tuple[CeleryMessage, str | None]:
    if kind != "application/json":
        return call, f"its content type is {kind!s:.80}, and only application/json is supported"
    if call.headers.get("compression"):
        return call, f"it is compressed, as {call.headers['compression']!s:.80}"
    if "task" not in call.headers or "id" not in call.headers:
        return call, "it is a message of Celery's protocol 1, and only protocol 2 is supported"
    body = message["body"]
    if message["properties"].get("body_encoding") == "base64":
        body = b64decode(body, validate=True).decode()
    call = CeleryMessage(call.headers, body, call.reply_to, call.priority)
    args, kwargs, embedded = decode_message(body)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise TypeError("arguments")
    return call, call.why_not_movable(embedded or {})
