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

from tickwheel.celery.celery_message import CeleryCall

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
_GIVE_BACK: Final = """
if redis.call('LREM', KEYS[1], 1, ARGV[1]) > 0 then redis.call('LPUSH', KEYS[2], ARGV[2]) end
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One message: the bytes, where they are, and the call that they are, or why they cannot be one."""

    raw: bytes
    place: str
    tag: bytes | None
    call: CeleryCall
    refusal: str | None


class Broker:
    """The messages of one queue. ``redis`` is a client that answers bytes, ``prefix`` kombu's ``global_keyprefix``."""

    def __init__(self, redis: Any, queue: str, prefix: str = "") -> None:
        self._redis = redis
        self.queue = queue
        self._key = prefix + queue
        self._held = prefix + _HELD + queue
        self._unacked, self._unacked_index = prefix + _UNACKED, prefix + _UNACKED_INDEX
        self._take_listed = redis.register_script(_TAKE_LISTED)
        self._take_unacked = redis.register_script(_TAKE_UNACKED)
        self._give_back = redis.register_script(_GIVE_BACK)
        self._taken = 0

    def held(self) -> list[Waiting]:
        """What an import that was interrupted had taken; not more than a page."""
        return [_read(each, self._held, None) for each in self._redis.lrange(self._held, 0, -1)]

    def listed(self) -> Iterator[list[Waiting]]:
        """What waits in the lists, the most urgent and oldest first. What comes meanwhile is not waited for."""
        for suffix in _PRIORITIES:
            key, left = self._key + suffix, 0
            more = self._redis.llen(key)
            while more > 0 and (raw := self._redis.lrange(key, -left - min(more, _PAGE), -left - 1)):
                self._taken = 0
                yield [_read(each, key, None) for each in reversed(raw)]
                more -= len(raw)
                # What was not taken is passed over.
                left += len(raw) - self._taken

    def unacked(self) -> Iterator[list[Waiting]]:
        """What workers had taken from the queue and not acknowledged."""
        found = []
        for tag, raw in self._redis.hscan_iter(self._unacked, count=_PAGE):
            if _queue_of(raw) == self.queue:
                found.append(_read(raw, self._unacked, tag))
        for first in range(0, len(found), _PAGE):
            yield found[first : first + _PAGE]

    def take(self, messages: Sequence[Waiting]) -> list[Waiting]:
        """Hold them, as far as they are still there; all are of one page."""
        if not messages or self.holds(messages[0]):
            return list(messages)
        if messages[0].tag is None:
            keys, args = [messages[0].place, self._held], [each.raw for each in messages]
            taken = self._take_listed(keys=keys, args=args)
        else:
            keys = [self._unacked, self._held, self._unacked_index]
            taken = self._take_unacked(keys=keys, args=[part for each in messages for part in (each.tag, each.raw)])
        found = [each for each, was_there in zip(messages, taken, strict=True) if was_there]
        self._taken += len(found)
        return found

    def done(self, messages: Sequence[Waiting]) -> None:
        """Tickwheel has them."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for each in messages:
                pipeline.lrem(self._held, 1, each.raw)
            pipeline.execute()

    def holds(self, message: Waiting) -> bool:
        """Whether it was found among those that an import had taken."""
        return message.place == self._held

    def put_back(self, message: Waiting) -> None:
        """From those that are held into its queue, as the last."""
        wrapped = json.loads(message.raw)
        raw = json.dumps(wrapped[0]).encode() if isinstance(wrapped, list) else message.raw
        self._give_back(keys=[self._held, self._key], args=[message.raw, raw])


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


def _read(raw: bytes, place: str, tag: bytes | None) -> Waiting:
    try:
        wrapped = _loads(raw)
        message = wrapped[0] if isinstance(wrapped, list) else wrapped
        headers, properties = message["headers"], message["properties"]
        kind = message["content-type"]
        priority = int(properties.get("priority") or 0) or None
        call = CeleryCall(dict(headers), "", str(properties.get("reply_to") or ""), priority)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return Waiting(raw, place, tag, CeleryCall({}, ""), f"it is no message of kombu's: {error!r}")
    try:
        return Waiting(raw, place, tag, *_judged(message, call, kind))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return Waiting(raw, place, tag, call, f"its body is not of Celery's protocol 2: {error!r}")


def _judged(message: Any, call: CeleryCall, kind: str) -> tuple[CeleryCall, str | None]:
    if kind != "application/json":
        return call, f"its content type is {kind}, and only application/json is read"
    if call.headers.get("compression"):
        return call, f"it is compressed, as {call.headers['compression']}"
    if "task" not in call.headers or "id" not in call.headers:
        return call, "it is of Celery's protocol 1: only protocol 2 is read"
    body = message["body"]
    if message["properties"].get("body_encoding") == "base64":
        body = b64decode(body, validate=True).decode()
    call = CeleryCall(call.headers, body, call.reply_to, call.priority)
    args, kwargs, embedded = _loads(body)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise TypeError("arguments")
    return call, call.obstacle(embedded or {})
