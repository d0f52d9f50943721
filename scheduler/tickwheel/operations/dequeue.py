"""Dequeue: leases the messages with the earliest deadlines, from the shards with the most urgent messages first.

A call that waits sends nothing to the server until it is woken.
"""

import os
import time
from struct import Struct
from typing import Any

from tickwheel import limits
from tickwheel.errors import QueueNotFound, TickwheelError
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.answered_calls import answered_shards
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dequeue_options import AnswerRoom, DequeueOptions
from tickwheel.operations.dispatch import ScriptCall, call_in_session
from tickwheel.operations.exact_order import shares_per_shard
from tickwheel.operations.leased_messages import M, MessageFactory, build_messages
from tickwheel.operations.locate import shard_of_message
from tickwheel.operations.ready_shards import ReadyShards
from tickwheel.operations.sessions import ClientSession
from tickwheel.plan import (
    AwaitWakeup,
    BeginSearch,
    ContinueWalk,
    EndSearch,
    ForwardWakeup,
    Plan,
    Reply,
    Search,
    Subscribe,
    Unsubscribe,
)
from tickwheel.storage import record

_PARAMS = Struct(">HIIIII16s")
_HEAD = Struct(">BQQ")
_NO_DEADLINE = 2**53 - 1
# Statuses of a reply (`lua/dequeue.lua`). MORE: nothing found yet, so call again with the cursor of the reply. SHORT:
# the call reached a limit of bytes or of work, so there may be more messages. REPEATED: it repeats an answer.
_FINAL, _MORE, _REPEATED, _SHORT = 0, 1, 2, 3


class Dequeue:
    """One dequeue call; `plan` executes it."""

    def __init__(self, context: NamespaceContext, queue: str, options: DequeueOptions, caller: str = "") -> None:
        """``caller``: among the calls of a process that wait, those of one caller share its turns."""
        self._context = context
        self._queue = queue
        self._caller = caller
        self._room = AnswerRoom(options.max_bytes)
        self._options = options
        self._limit = options.limit
        self._where = record.encode_filters(options.filters) if options.filters else b""
        self._named = None if options.request is None else options.request.call(queue, "Dequeue", options.content())
        self._request = None if self._named is None else self._named.session()
        self._sequence = 0 if self._request is None else self._request.sequence
        self._is_recorded = self._request is not None and not options.first_attempt
        self._ready_shards = ReadyShards(
            context, queue, options.filters, self._where, is_request=bool(self._request), is_recorded=self._is_recorded
        )
        self._exclusive = False
        self._until = 0.0
        self._waits = True
        self._waiter: Any = None
        # With a request id, the answers of a shard are stored in numbered sessions. For each shard, this dict has the
        # number of the session for the next call. The number grows by one with each answer after which the shard may
        # have more messages.
        self._parts: dict[int, int] = {}
        # The shards that have repeated an answer. Their next parts are only repeated, too: whether the first call had
        # another part depends on its limits, which a retry does not know.
        self._replaying: set[int] = set()

    @property
    def coalescing_key(self) -> tuple[str, bytes]:
        """Queue and filter. If a call with this key finds nothing, other calls with the same key find nothing, too."""
        return self._queue, self._where

    @property
    def limit(self) -> int:
        """The maximum number of messages that the call returns."""
        return self._limit

    @property
    def may_be_repeated(self) -> bool:
        """Whether the answer may have the messages of earlier calls with the same request id."""
        return self._is_recorded

    def may_have_messages(self) -> Plan[bool]:
        """Return whether there may be messages for this call and for other calls with the same `coalescing_key`."""
        try:
            config = yield from self._checked_config()
        except QueueNotFound:
            return True
        return (yield from self._ready_shards.may_have_messages(config))

    def plan(self, factory: MessageFactory[M]) -> Plan[list[M]]:
        """Dequeue the available messages. If there are none, wait for a wake-up and try again, until the wait is over.

        While the queue does not exist, each second, one waiting call of the process checks again.
        """
        with self._request or self._context.sessions.borrow() as client_session:
            messages = yield from self._search(client_session, factory, final=not self._options.wait_ms)
            if messages or not self._options.wait_ms:
                return messages
            if self._waits:
                self._until = time.monotonic() + self._options.wait_ms / 1000
            exists = self._queue in self._context.configs
            waiter = self._waiter = yield Subscribe(self._queue, self._where, self._caller, exists)
            woken = False
            try:
                while True:
                    # Subscribe first, then try, so that a message that becomes ready in between is not missed.
                    left = self._until - time.monotonic()
                    messages = yield from self._search(client_session, factory, final=left <= 0, woken=woken)
                    if messages:
                        return messages
                    # A call with a filter may leave ready messages for which other callers wait, so the call forwards
                    # the wake-up. A call without a filter leaves no ready messages.
                    if self._options.filters:
                        yield ForwardWakeup(waiter)
                    if left <= 0:
                        return []
                    woken = exists
                    if exists:
                        yield AwaitWakeup(waiter, left)
                        self._ready_shards.forget_empty()
                    elif (yield from self._await_queue(waiter)):
                        # The subscription also wakes the other dequeues that wait for the queue.
                        exists = True
                        yield Unsubscribe(waiter)
                        waiter = self._waiter = yield Subscribe(self._queue, self._where, self._caller)
            finally:
                self._waiter = None
                yield Unsubscribe(waiter)

    def _await_queue(self, waiter: Any) -> Plan[bool]:
        """Wait until the queue exists, or the wait is over. Return whether the queue exists."""
        while (left := self._until - time.monotonic()) > 0:
            yield AwaitWakeup(waiter, left)
            if (yield from self._context.exists(self._queue)):
                return True
        return False

    def cancel_wait(self) -> None:
        """End the wait of this call after one more try, even if the wait has not started yet."""
        self._waits, self._until = False, 0.0
        if self._waiter is not None:
            self._waiter.wake()

    def dequeue_shard(self, shard: int, factory: MessageFactory[M]) -> Plan[tuple[list[M], bool]]:
        """Return the messages of one shard, for a caller that serves only this shard, and whether it may have more."""
        yield from self._checked_config()
        with self._context.sessions.borrow() as client_session:
            messages, more = yield from self._call_shard(client_session, shard, self._limit, factory, final=True)
            return messages, more or self._room.listed == self._limit

    def _search(
        self, client_session: ClientSession, factory: MessageFactory[M], *, final: bool, woken: bool = False
    ) -> Plan[list[M]]:
        """Dequeue the available messages. If the call waits, an equal search of another call may show that none are."""
        must_call = not self._options.wait_ms or self._is_recorded or client_session.has_unanswered_call(0)
        if must_call or not self._options.filters:
            return (yield from self._dequeue_available(client_session, factory, final))
        search = Search(self._queue, self._where, self._caller, final, woken and not final)
        try:
            yield BeginSearch(search)
            messages = yield from self._dequeue_available(client_session, factory, final, search)
            search.is_complete = not self._ready_shards.is_partial
            search.found = bool(messages)
            return messages
        finally:
            yield EndSearch(search)

    def _dequeue_available(
        self, client_session: ClientSession, factory: MessageFactory[M], final: bool, search: Search | None = None
    ) -> Plan[list[M]]:
        messages: list[M] = []
        try:
            config = yield from self._checked_config()
            if (
                search is None
                or not search.is_answered
                or (yield from self._ready_shards.must_search(config, woken=search.woken))
            ):
                yield from self._collect(messages, config, client_session, factory, final)
        except QueueNotFound:
            # If queues are created automatically, a queue that does not exist counts as empty.
            if not messages and not self._context.auto_create:
                raise
        except TickwheelError:
            # Return the messages leased so far. The next call will raise the error again.
            if not messages:
                raise
        if self._options.exact or self._request is not None:
            # The result must not depend on the order of the calls: a retried request returns the same list.
            messages.sort(key=lambda message: (message._deadline_ms, shard_of_message(self._context, message)))
        return messages

    def _collect(
        self,
        messages: list[M],
        config: QueueConfig,
        client_session: ClientSession,
        factory: MessageFactory[M],
        final: bool,
    ) -> Plan[None]:
        """Append messages to ``messages``, one call after the other."""
        self._ready_shards.is_partial = False
        several = self._context.shards > 1
        is_first = self._request is not None and not self._is_recorded
        if several and is_first and not (yield from self._ready_shards.may_have_messages(config)):
            return
        answered: list[int] = []
        if several and self._named is not None:
            registers = self._options.registers
            answered = yield from answered_shards(self._context, self._queue, self._named, registers=registers)
        if answered:
            # Each shard returns the messages of its first answer, whatever the other shards return.
            for shard in answered:
                if self._room.is_full and not self._is_recorded:
                    break
                yield from self._fill_from_shard(
                    messages, client_session, shard, len(messages) + self._limit, factory, final
                )
        elif several and self._options.exact:
            # Which messages fit is only known after they are leased, and then it is too late for their exact order.
            self._limit = self._room.exact_limit(self._limit, config.payload_limit)
            yield from self._dequeue_exact(messages, client_session, config, factory, final)
        else:
            shards = yield from self._ready_shards.shards(config, client_session.has_unanswered_call(0), final)
            for shard in shards:
                if not self._room.is_full:
                    yield from self._fill_from_shard(messages, client_session, shard, self._limit, factory, final)
            if len(messages) < self._limit and not self._room.is_full:
                for shard in (yield from self._ready_shards.more_shards(config, shards, final and not messages)):
                    if self._room.is_full:
                        break
                    yield from self._fill_from_shard(messages, client_session, shard, self._limit, factory, final)

    def _dequeue_exact(
        self,
        messages: list[M],
        client_session: ClientSession,
        config: QueueConfig,
        factory: MessageFactory[M],
        final: bool,
    ) -> Plan[None]:
        """Take from each shard its share of the most urgent messages. Repeat if other callers took some first."""
        while len(messages) < self._limit:
            counts, is_all = yield from shares_per_shard(
                self._context, self._queue, self._where, self._limit - len(messages)
            )
            if not counts and not messages:
                # Read the configuration again: a shard may have rejected the cached one.
                config = yield from self._context.config(self._queue)
                if self._ready_shards.must_call_script(config):
                    counts[0] = self._limit
            for shard, count in counts.items():
                yield from self._fill_from_shard(messages, client_session, shard, len(messages) + count, factory, final)
            # With a request id, do not repeat after an answer that may be stored. The session's number stays the same
            # for a shard that had no more messages, so the shard would return the stored answer again.
            if is_all or (self._request is not None and (messages or final)):
                break

    def _fill_from_shard(
        self,
        messages: list[M],
        client_session: ClientSession,
        shard: int,
        up_to: int,
        factory: MessageFactory[M],
        final: bool,
    ) -> Plan[None]:
        """Append messages until ``messages`` has ``up_to`` elements, or the room is full, or the shard has no more."""
        more = True
        while more and len(messages) < up_to:
            part, more = yield from self._call_shard(client_session, shard, up_to - len(messages), factory, final)
            messages += part
            more = more and not self._room.ends_shard

    def _checked_config(self) -> Plan[QueueConfig]:
        config = yield from self._context.config(self._queue)
        self._options.check_sink(self._queue, config)
        self._options.check_indexed(self._queue, config)
        self._exclusive = config.exclusive_key is not None
        return config

    def _call_shard(
        self, client_session: ClientSession, shard: int, limit: int, factory: MessageFactory[M], final: bool
    ) -> Plan[tuple[list[M], bool]]:
        """Return the messages of one shard, and whether the shard may have more."""
        context, cursor, token, sent = self._context, b"", os.urandom(16), time.monotonic()
        share = min(limit, limits.CALL_MESSAGES)
        if self._named is not None and (part := self._parts.get(shard, 0)):
            client_session = self._named.session(part)

        def build(config: QueueConfig, session: bytes) -> ScriptCall:
            # The script rejects the call if the shard has another configuration, so it is enough to check ``config``.
            self._options.check_sink(self._queue, config)
            queue_context = config.context(context.history, context.options(config.dequeue_blocked))
            maxima = *self._room.maxima(), limits.CALL_ENTRIES
            params = _PARAMS.pack(share, self._options.lease_ms, config.lease_ms, *maxima, token)
            params += self._options.worker
            return "dequeue", [queue_context, session, params, *filter(None, (self._where, cursor))]

        while True:
            if self._request is not None:
                # A request has the same sequence number on every shard and in every retry.
                client_session.pin_sequence(
                    self._sequence, final, is_first=not self._is_recorded, replays=shard in self._replaying
                )
            reply = yield from call_in_session(context, self._queue, shard, client_session, build)
            status, now_ms, entries = self._parse_reply(shard, reply)
            client_session.call_answered(shard, stored=bool(entries) or reply.resent)
            if status != _MORE:
                # A stored answer also lists messages that are no longer leased.
                listed = (len(reply.value or ()) - 2) // 2
                if status == _REPEATED and listed > 0:
                    self._replaying.add(shard)
                more = status == _SHORT or (listed > 0 if status == _REPEATED else listed == share < limit)
                self._parts[shard] = self._parts.get(shard, 0) + more
                messages = yield from self._build_messages(shard, entries, now_ms, sent, factory)
                self._room.count(entries, messages, is_repeated=self._is_recorded and status == _REPEATED)
                return messages, more
            cursor = reply.value[1]
            yield ContinueWalk(has_messages=self._room.has_messages)

    def _parse_reply(self, shard: int, reply: Reply) -> tuple[int, int, list[tuple[bytes, bytes]]]:
        """Return the status, the time of the reply by the shard's clock, and field and record of each message."""
        answer = reply.value
        if answer is None or answer == []:
            self._ready_shards.record_empty(matching=answer is not None)
            return _FINAL, 0, []
        status, head, now_ms = _HEAD.unpack(answer[0])
        if status == _FINAL and len(answer) == 2:
            self._ready_shards.record_empty(matching=bool(self._where))
        else:
            self._ready_shards.forget_empty()
        if self._context.shards > 1:
            self._context.heads.record(self._queue, shard, None if head == _NO_DEADLINE else head - record.BIAS)
        entries = zip(answer[2::2], answer[3::2], strict=True)
        return status, now_ms, [(field, stored) for field, stored in entries if stored]

    def _build_messages(
        self, shard: int, entries: list[tuple[bytes, bytes]], now_ms: int, sent: float, factory: MessageFactory[M]
    ) -> Plan[list[M]]:
        return build_messages(self._context, self._queue, shard, entries, now_ms, sent, factory, self._exclusive)
