"""What waits in Celery's Redis, and taking it out so that it is always in one place: there, held, or in Tickwheel.

kombu keeps a queue as lists, one for each step of priority, whose tail goes first; and what its workers have taken and
not acknowledged (all they wait with for an ETA) in a hash beside an index by time. A message that is taken goes, in one
step, to a list of ours beside its queue, and off it once Tickwheel has it: an import that is interrupted goes on there.
"""

import json
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tickwheel.celery.celery_message import CeleryMessage
from tickwheel.runtime.chunks import iter_chunks

_HELD = "tickwheel:importing:"
_UNACKED, _UNACKED_INDEX = "unacked", "unacked_index"
# kombu's, by default every third of them.
_PRIORITIES: Final = ("", *(f"\x06\x16{step}" for step in range(1, 10)))
_PAGE: Final = 200
# The first two for a list, or a hash and its index: take it there if it is there still, and hold it.
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
    """One message: the bytes, where they are, and the call that they are, or why they cannot be one."""

    raw: bytes
    key: str
    tag: bytes | None
    call: CeleryMessage
    refusal: str | None


class CeleryQueue:
    """The messages of one queue. ``redis`` is a client that answers bytes, ``prefix`` kombu's ``global_keyprefix``."""

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
        """What an import that was interrupted had taken; not more than a page."""
        return [_parse(item, self._held, None) for item in self._redis.lrange(self._held, 0, -1)]

    def listed_items(self) -> Iterator[list[CeleryQueueItem]]:
        """What waits in the lists, the most urgent and oldest first. What comes meanwhile is not waited for."""
        for suffix in _PRIORITIES:
            key, left = self._key + suffix, 0
            more = self._redis.llen(key)
            while more > 0 and (raw := self._redis.lrange(key, -left - min(more, _PAGE), -left - 1)):
                self._taken = 0
                yield [_parse(item, key, None) for item in reversed(raw)]
                more -= len(raw)
                # What was not taken is passed over.
                left += len(raw) - self._taken

    def unacked_items(self) -> Iterator[list[CeleryQueueItem]]:
        """What workers had taken from the queue and not acknowledged."""
        items = []
        for tag, raw in self._redis.hscan_iter(self._unacked, count=_PAGE):
            if _queue_of(raw) == self.queue:
                items.append(_parse(raw, self._unacked, tag))
        yield from iter_chunks(items, _PAGE)

    def take(self, items: Sequence[CeleryQueueItem]) -> list[CeleryQueueItem]:
        """Hold them, as far as they are still there; all are of one page."""
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
        """Tickwheel has them."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for item in items:
                pipeline.lrem(self._held, 1, item.raw)
            pipeline.execute()

    def is_held(self, item: CeleryQueueItem) -> bool:
        """Whether it was found among those that an import had taken."""
        return item.key == self._held

    def requeue(self, item: CeleryQueueItem) -> None:
        """From those that are held into its queue, as the last."""
        wrapped = json.loads(item.raw)
        raw = json.dumps(wrapped[0]).encode() if isinstance(wrapped, list) else item.raw
        self._requeue_script(keys=[self._held, self._key], args=[item.raw, raw])


def _loads(text: bytes | str) -> Any:
    """What JSON says. Raises ValueError, also for what is nested deeper than can be read."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _queue_of(raw: bytes) -> str:
    try:
        return str(_loads(raw)[2])
    except (ValueError, LookupError, TypeError):
        return ""


def _parse(raw: bytes, key: str, tag: bytes | None) -> CeleryQueueItem:
    try:
        wrapped = _loads(raw)
        message = wrapped[0] if isinstance(wrapped, list) else wrapped
        headers, properties = message["headers"], message["properties"]
        kind = message["content-type"]
        priority = int(properties.get("priority") or 0) or None
        call = CeleryMessage(dict(headers), "", str(properties.get("reply_to") or ""), priority)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return CeleryQueueItem(raw, key, tag, CeleryMessage({}, ""), f"it is no message of kombu's: {error!r}")
    try:
        return CeleryQueueItem(raw, key, tag, *_check_movable(message, call, kind))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return CeleryQueueItem(raw, key, tag, call, f"its body is not of Celery's protocol 2: {error!r}")


def _check_movable(message: Any, call: CeleryMessage, kind: str) -> tuple[CeleryMessage, str | None]:
    if kind != "application/json":
        return call, f"its content type is {kind}, and only application/json is read"
    if call.headers.get("compression"):
        return call, f"it is compressed, as {call.headers['compression']}"
    if "task" not in call.headers or "id" not in call.headers:
        return call, "it is of Celery's protocol 1: only protocol 2 is read"
    body = message["body"]
    if message["properties"].get("body_encoding") == "base64":
        body = b64decode(body, validate=True).decode()
    call = CeleryMessage(call.headers, body, call.reply_to, call.priority)
    args, kwargs, embedded = _loads(body)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise TypeError("arguments")
    return call, call.why_not_movable(embedded or {})
