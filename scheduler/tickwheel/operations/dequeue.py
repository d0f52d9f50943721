"""Dequeue: earliest deadline first, over the shards whose heads are most urgent, waiting without polling."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from struct import Struct
from typing import Any, TypeVar

from tickwheel import limits
from tickwheel.errors import (
    InvalidArgument,
    LeaseLost,
    QueueConfigConflict,
    QueueNotFound,
    SessionExpired,
    TickwheelError,
)
from tickwheel.model import validation as arguments
from tickwheel.model.message import LeasedMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import Core
from tickwheel.operations.exact_order import shares
from tickwheel.operations.head_cache import Readiness
from tickwheel.operations.sessions import Slot, parse_request_id
from tickwheel.operations.settle import fail, shard_of_message
from tickwheel.plan import Leave, Park, PassOn, Plan, Reply, Request, Round, Watch, one
from tickwheel.storage import record
from tickwheel.storage.keys import session_key

_PARAMS = Struct(">HIIIII16s")
_HEAD = Struct(">BQQ")
_SEQUENCE = Struct(">Q")
_NO_DEADLINE = 2**53 - 1
_FINAL, _MORE, _SHORT = 0, 1, 3

M = TypeVar("M", bound=LeasedMessage)
Maker = Callable[[str, bytes, bytes, bytes, bool], M]


class Dequeue:
    """One dequeue call, its arguments checked; `plan` carries it out."""

    def __init__(
        self,
        core: Core,
        queue: str,
        limit: int,
        where: Mapping[str, str] | None,
        lease: timedelta | None,
        wait: timedelta | None,
        worker: str | None,
        request_id: str | None,
        consistency: str,
        sink: str | None = None,
        *,
        first_attempt: bool = False,
    ) -> None:
        """``sink`` is whom the messages are for, where that is not a worker. A request's ``first_attempt`` that finds
        nothing leaves no trace: see `DequeueRequest.first_attempt`.
        """
        self._core = core
        self._queue = queue
        self._limit = arguments.integer("limit", limit, 1, limits.DEQUEUE_MESSAGES)
        self._filters = {} if where is None else arguments.filters(where)
        self._where = record.where(self._filters) if self._filters else b""
        self._lease_ms = (
            0 if lease is None else arguments.duration_ms("lease", lease, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        )
        self._wait_s = 0.0 if wait is None else arguments.duration_ms("wait", wait, 0, limits.WAIT_MS_MAX) / 1000
        self._worker = arguments.text("worker", "" if worker is None else worker, limits.WORKER_BYTES)
        self._request = None if request_id is None else parse_request_id(request_id, queue)
        self._sequence = 0 if self._request is None else self._request.sequence
        self._exact = arguments.one_of("consistency", consistency, ("heads", "exact")) == "exact"
        self._leaves_trace = self._request is not None and not first_attempt
        self._readiness = Readiness(
            core,
            queue,
            self._filters,
            self._where,
            is_request=self._request is not None,
            leaves_trace=self._leaves_trace,
        )
        self._sink = sink
        self._exclusive = False
        self._until = 0.0
        self._waits = True
        self._waiter: Any = None
        # Of a request, by shard, how many of its calls there were filled.
        self._parts: dict[int, int] = {}

    @property
    def of(self) -> tuple[str, bytes]:
        """What it may be given: where one call finds nothing, another finds nothing of the same."""
        return self._queue, self._where

    @property
    def limit(self) -> int:
        """With fewer messages nothing more was there."""
        return self._limit

    def look(self) -> Plan[bool]:
        """Whether there may be something for it, and for whoever else asks for the same."""
        try:
            config = yield from self._checked_config()
        except QueueNotFound:
            return True
        return (yield from self._readiness.look(config))

    def plan(self, make: Maker[M]) -> Plan[list[M]]:
        """Try; with a wait, sleep until woken and try again. A waiter never asks the server on its own."""
        slot = self._request or self._core.slots.take()
        try:
            found = yield from self._try(slot, make, final=not self._wait_s)
            if found or not self._wait_s:
                return found
            if self._waits:
                self._until = time.monotonic() + self._wait_s
            waiter = self._waiter = yield Watch(self._queue)
            try:
                while True:
                    # Subscribed first, tried after: what became ready in between is not missed.
                    left = self._until - time.monotonic()
                    found = yield from self._try(slot, make, final=left <= 0)
                    if found or left <= 0:
                        return found
                    # Where a call without a filter found nothing, nobody would: only a filter leaves something over.
                    if self._filters:
                        yield PassOn(waiter)
                    yield Park(waiter, left)
                    self._readiness.found_something()
            finally:
                self._waiter = None
                yield Leave(waiter)
        finally:
            if self._request is None:
                self._core.slots.give(slot)

    def wait_no_longer(self) -> None:
        """If it waits, or is about to, it looks once more and its wait is over."""
        self._waits, self._until = False, 0.0
        if self._waiter is not None:
            self._waiter.wake()

    def of_shard(self, shard: int, make: Maker[M]) -> Plan[tuple[list[M], bool]]:
        """What one shard has, and whether it may have more: for who serves that shard alone, and never waits here."""
        yield from self._checked_config()
        slot = self._core.slots.take()
        try:
            return (yield from self._shard(slot, shard, self._limit, make, final=True))
        finally:
            self._core.slots.give(slot)

    def _try(self, slot: Slot, make: Maker[M], final: bool) -> Plan[list[M]]:
        found: list[M] = []
        try:
            yield from self._collect(found, slot, make, final)
        except QueueNotFound:
            # Where queues come by themselves, one that is not there yet, or not any more, is empty.
            if not found and not self._core.auto_create:
                raise
        except TickwheelError:
            # What is leased by then is handed out; what went wrong comes again with the next call.
            if not found:
                raise
        if self._exact or self._request is not None:
            # Of several shards, whichever was asked first: a request that is repeated has the same order.
            found.sort(key=lambda message: (message._deadline_ms, shard_of_message(self._core, message)))
        return found

    def _collect(self, found: list[M], slot: Slot, make: Maker[M], final: bool) -> Plan[None]:
        """Fill ``found``, one call after the other."""
        config = yield from self._checked_config()
        several = self._core.shards > 1
        is_first = self._request is not None and not self._leaves_trace
        if several and is_first and not (yield from self._readiness.look(config)):
            return
        if several and self._request is not None and (answered := (yield from self._answered(slot))):
            for shard in answered:
                # The same request again gets the same messages, whatever limit it names.
                yield from self._take(found, slot, shard, len(found) + self._limit, make, final)
        elif several and self._exact:
            yield from self._most_urgent_of_all(found, slot, config, make, final)
        else:
            shards = yield from self._readiness.shards(config, slot.unanswered(0), final)
            for shard in shards:
                yield from self._take(found, slot, shard, self._limit, make, final)
            if len(found) < self._limit:
                for shard in (yield from self._readiness.others(config, shards, final and not found)):
                    yield from self._take(found, slot, shard, self._limit, make, final)

    def _most_urgent_of_all(
        self, found: list[M], slot: Slot, config: QueueConfig, make: Maker[M], final: bool
    ) -> Plan[None]:
        """From each shard as many as it has of the most urgent; asked again where others were faster."""
        while len(found) < self._limit:
            most, is_all = yield from shares(self._core, self._queue, self._where, self._limit - len(found))
            if not most and not found:
                # As the shards have it by now: they may have refused what was known of it before.
                config = yield from self._core.config(self._queue)
                if self._readiness.must_ask(config):
                    most[0] = self._limit
            for shard, count in most.items():
                yield from self._take(found, slot, shard, len(found) + count, make, final)
            # What a request has left on a shard answers it the same from then on, so it is asked once.
            if is_all or (self._request is not None and (found or final)):
                break

    def _take(self, found: list[M], slot: Slot, shard: int, up_to: int, make: Maker[M], final: bool) -> Plan[None]:
        """Messages of one shard, until ``up_to`` are found in all."""
        more = True
        while more and len(found) < up_to:
            part, more = yield from self._shard(slot, shard, up_to - len(found), make, final)
            found += part

    def _checked_config(self) -> Plan[QueueConfig]:
        config = yield from self._core.config(self._queue)
        self._check_taker(config)
        self._check_indexed(config)
        self._exclusive = config.exclusive_key is not None
        return config

    def _check_taker(self, config: QueueConfig) -> None:
        if config.sink == self._sink:
            return
        if self._sink is not None:
            raise QueueConfigConflict(f"queue {self._queue!r} has sink={config.sink!r}, not {self._sink!r} any more")
        raise QueueConfigConflict(
            f"queue {self._queue!r} hands its messages to {config.sink}, so workers cannot dequeue them; to give it"
            " back to workers, update it with sink=''"
        )

    def _check_indexed(self, config: QueueConfig) -> None:
        if config.indexed is None:
            return
        for key in self._filters:
            if key not in config.indexed:
                raise InvalidArgument(
                    f"queue {self._queue!r} does not index {key!r}: it was created with indexed={list(config.indexed)}"
                )

    def _answered(self, slot: Slot) -> Plan[list[int]]:
        """The shards that have answered this request before; SessionExpired where a newer one of its slot was answered.

        A shard refuses what is older than the last it answered itself; the last answer of the slot may be another's.
        """
        core = self._core
        keys = [session_key(core.namespace, shard, slot.name) for shard in range(core.shards)]
        replies = yield Round([Request(shard, command=("GET", key)) for shard, key in enumerate(keys)])
        wanted = self._sequence + 1
        last = {n: _SEQUENCE.unpack_from(reply.value)[0] for n, reply in enumerate(replies) if reply.value is not None}
        if any(sequence > wanted for sequence in last.values()):
            raise SessionExpired(f"request {slot.name}:{wanted} is refused: a newer one of its slot was answered")
        return [shard for shard, sequence in last.items() if sequence == wanted]

    def _shard(self, slot: Slot, shard: int, limit: int, make: Maker[M], final: bool) -> Plan[tuple[list[M], bool]]:
        """What one shard has, and whether it may have more."""
        core, cursor = self._core, b""
        token = os.urandom(16)
        share = min(limit, limits.CALL_MESSAGES)
        if self._request is not None:
            slot = self._part(slot, shard)

        def build(config: QueueConfig, session: bytes) -> tuple[str, list[bytes | int | str]]:
            # The script runs under this configuration or not at all.
            self._check_taker(config)
            context = config.context(core.history, core.options(config.dequeue_blocked))
            room = limits.CALL_BYTES, limits.BESIDE_BYTES
            params = _PARAMS.pack(share, self._lease_ms, config.lease_ms, *room, limits.CALL_ENTRIES, token)
            return "dequeue", [context, session, params + self._worker, *filter(None, (self._where, cursor))]

        while True:
            if self._request is not None:
                # One request stands for one sequence, on every shard and however often it is sent.
                slot.repeat(self._sequence, final, is_first=not self._leaves_trace)
            reply = yield from core.in_session(self._queue, shard, slot, build)
            status, now_ms, found = self._read(shard, reply)
            slot.answered(shard, kept=bool(found) or reply.resent)
            if status != _MORE:
                # Of a request that is repeated, all that it was answered counts, held or not.
                more = status == _SHORT or (len(reply.value or ()) - 2) // 2 == share < limit
                self._parts[shard] = self._parts.get(shard, 0) + more
                return (yield from self._made(shard, found, now_ms, make)), more
            cursor = reply.value[1]

    def _part(self, slot: Slot, shard: int) -> Slot:
        """The slot of a request's next call on the shard: each call has one answer, so each has a name."""
        part = self._parts.get(shard, 0)
        return Slot(f"{slot.name}/{part}") if part else slot

    def _read(self, shard: int, reply: Reply) -> tuple[int, int, list[tuple[bytes, bytes]]]:
        """The status, when that was by the shard's clock, and field and record of each message."""
        answer = reply.value
        if not answer:
            self._readiness.found_nothing(matching=answer is not None)
            return _FINAL, 0, []
        status, head, now_ms = _HEAD.unpack(answer[0])
        if status == _FINAL and len(answer) == 2:
            self._readiness.found_nothing(matching=bool(self._where))
        else:
            self._readiness.found_something()
        if self._core.shards > 1:
            self._core.hear_head(self._queue, shard, None if head == _NO_DEADLINE else head - record.BIAS)
        found = zip(answer[2::2], answer[3::2], strict=True)
        return status, now_ms, [(field, stored) for field, stored in found if stored]

    def _made(self, shard: int, found: list[tuple[bytes, bytes]], now_ms: int, make: Maker[M]) -> Plan[list[M]]:
        """The messages; large payloads are read now, past the script, which would have hashed them."""
        core, queue, exclusive = self._core, self._queue, self._exclusive
        large = [record.body_field(field, stored) for field, stored in found if stored[1] & record.BODY]
        if not large:
            return [_leased(make(queue, field, stored, b"", exclusive), now_ms) for field, stored in found]
        read = yield from one(Request(shard, command=("HMGET", core.keys(shard, queue)["bodies"], *large)))
        bodies = dict(zip(large, read.value, strict=True))
        messages = []
        for field, stored in found:
            body = bodies[record.body_field(field, stored)] if stored[1] & record.BODY else b""
            message = _leased(make(queue, field, stored, body or b"", exclusive), now_ms)
            if body is None:
                # Cancelled since. To give it back frees the exclusive value that it holds.
                with suppress(LeaseLost):
                    yield from fail(core, message, "its payload is gone", None)
            else:
                messages.append(message)
        return messages


def _leased(message: M, now_ms: int) -> M:
    message._lease_ms = message._lease_until_ms - now_ms
    return message
