"""Waits until one of several queues may have messages for the caller. Leases nothing.

One waiter is in the lines of all queues, so the first announcement of any of them ends the wait. The wait reads from
the server only when it begins, and after a sweep (`redis/wait_list.py`), which chooses one waiter of each open queue of
a process about once a second. Such a *check* is one round for all open queues, whatever their number. If there are
messages, further rounds find their queues. A sweep also chooses one waiter of the process that reads closed queues, for
all waiters (`redis/closed_queues.py`).
"""

import time
from collections.abc import Collection, Iterable, Sequence
from random import randrange
from typing import Any

from tickwheel.errors import DataLoss
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import AwaitWakeup, Plan, Reply, Request, Round, SubscribeJointly, Unsubscribe
from tickwheel.storage.keys import queue_key, queues_key

# A sweep needs no check so soon after the last one, nor so near the end of the wait: the next wait begins with a check.
# So a worker that waits for a second at a time checks once in each wait, whenever the sweep comes.
_RECENT_S, _NEAR_END_S = 0.9, 0.2
# The maximum number of keys in one round of a check, and of reads in one of the rounds after it, so that a check does
# not occupy an event loop for long.
_ROUND_KEYS = 2_000
_ROUND_READS = 250


class MessageWait:
    """One wait. A queue that does not exist or is blocked counts as empty until a check finds it open.

    Call `next` until it returns no queues, and finally `end`.
    """

    def __init__(self, context: NamespaceContext, queues: Sequence[str], caller: str = "") -> None:
        """``caller``: among the calls of a process that wait, those of one caller share its turns."""
        self._context = context
        self._queues = tuple(queues)
        self._caller = caller
        self._waiter: Any = None
        # The queues whose announcements wake the waiter. It waits for the others as closed queues.
        self._subscribed: list[str] = []
        self._must_check = True
        self._checked_at = 0.0
        # The closed queues that a sweep has chosen for this call.
        self._chosen: Sequence[str] = ()
        # The queues whose configurations the next check reads.
        self._to_read: Sequence[str] = self._queues
        # When the call has read its own closed queues; 0 if it has not.
        self._closed_read_at = 0.0
        self._is_announced = False
        self._is_cancelled = False

    def plan(self, seconds: float) -> Plan[list[str]]:
        """Wait up to ``seconds``, and return the queues that may have messages, in which the caller then searches."""
        if not seconds:
            return (yield from self._check_once())
        try:
            ready = yield from self.next(time.monotonic() + seconds)
            if self._is_announced:
                # The caller searches after this plan, so the wake-up is in use. Queues that a check has found are
                # possibly not searched, and a wake-up that arrived during the check goes to another waiter.
                for queue in ready:
                    self.begin_search(queue)
            return ready
        finally:
            yield from self.end()

    def next(self, until: float) -> Plan[list[str]]:
        """Return queues that may have messages, or an empty list if the wait is over at ``until``, in monotonic
        seconds. At the next call, the same queues are returned only for new announcements or by a check.
        """
        self._is_announced = False
        while True:
            yield from self._subscribe_to_open_queues()
            if self._must_check:
                self._must_check, self._checked_at = False, time.monotonic()
                if ready := (yield from self._check()):
                    return self._found(ready)
                if self._open_queues() != self._subscribed:
                    continue
            left = until - time.monotonic()
            if left <= 0 or self._is_cancelled:
                return []
            yield AwaitWakeup(self._waiter, left)
            announced, is_swept = self._waiter.announced()
            now = time.monotonic()
            is_due = now - self._checked_at >= _RECENT_S and until - now > _NEAR_END_S
            self._must_check = is_swept and is_due
            if announced:
                self._is_announced = True
                return self._found(announced)
            self._begin_to_read(now)

    def begin_search(self, queue: str) -> None:
        """Use the wake-up for a queue: the caller searches the queue. `end` passes an unused wake-up on."""
        if self._waiter is not None:
            self._waiter.begin_search(queue)

    def end(self) -> Plan[None]:
        """Leave the lines of all queues."""
        if self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            yield Unsubscribe(waiter)

    def cancel_wait(self) -> None:
        """End the wait, even if it has not begun."""
        self._is_cancelled = True
        if self._waiter is not None:
            self._waiter.wake()

    def _open_queues(self) -> list[str]:
        """Return the queues that exist and are not blocked for dequeue, as far as the cache knows."""
        return [queue for queue in self._queues if self._is_open(queue)]

    def _is_open(self, queue: str) -> bool:
        config = self._context.configs.get(queue)
        return config is not None and not config.dequeue_blocked

    def _subscribe_to_open_queues(self) -> Plan[None]:
        """Stay in the lines of exactly the open queues: messages of a blocked queue must not wake the caller."""
        is_open = self._open_queues()
        if self._waiter is None or is_open != self._subscribed:
            if self._waiter is not None:
                self._waiter.open([queue for queue in is_open if queue not in self._subscribed])
            yield from self.end()
            self._subscribed = is_open
            closed = [queue for queue in self._queues if queue not in is_open]
            self._waiter = yield SubscribeJointly(is_open, self._caller, closed)
            # Subscribe first, then check, so that a message that becomes ready in between is not missed.
            self._must_check = True

    def _check_once(self) -> Plan[list[str]]:
        """Check without a subscription, and once more if the first check finds queues open."""
        self._subscribed = self._open_queues()
        ready = yield from self._check()
        if self._open_queues() != self._subscribed:
            self._subscribed = self._open_queues()
            ready = yield from self._check()
        return self._found(ready)

    def _check(self) -> Plan[list[str]]:
        """Return the subscribed queues that have deliverable messages. Read the configurations of the closed queues
        that a sweep has chosen for this call, or those of its own ones in the first check.

        Raises NamespaceGone. In case of an error, another call reads the chosen queues.
        """
        context, subscribed = self._context, self._subscribed
        closed = [queue for queue in self._to_read if queue not in subscribed]
        requests = [context.shards_request()]
        if closed:
            requests.append(Request(0, command=("HMGET", queues_key(context.namespace), *closed)))
        asked, left = self._first_and_left(subscribed)
        # A shard that does not answer does not delay the messages of the others.
        allow_partial = context.shards > 1
        shards, *replies = yield Round(requests + self._exists_on_all(asked), allow_partial)
        if shards is not None:
            context.check_shards(shards)
        if closed and (stored := replies.pop(0)) is not None:
            self._cache_configs(zip(closed, stored.value, strict=True))
            self._closed_read_at = self._closed_read_at or time.monotonic()
        self._end_to_read()
        while True:
            if found := (yield from self._find(_ready_shards(replies), asked, allow_partial)):
                # The queues that are left may have messages, too.
                self._must_check |= bool(left)
                return found
            if not left:
                return []
            # A shard that does not answer would delay each further round.
            at_once = len(left) if None in replies else len(asked)
            asked, left = left[:at_once], left[at_once:]
            replies = yield Round(self._exists_on_all(asked), allow_partial)

    def _first_and_left(self, queues: list[str]) -> tuple[list[str], list[str]]:
        """Return the queues of the first round of a check, and those of further rounds. If one round is not enough for
        all, each check begins with a random queue, because it ends when it has found messages.
        """
        # Each round asks all shards: if one does not answer, the round ends only if another one does.
        at_once = max(_ROUND_KEYS // self._context.shards, 1)
        if len(queues) > at_once:
            start = randrange(len(queues))
            queues = queues[start:] + queues[:start]
        return queues[:at_once], queues[at_once:]

    def _find(self, shards: list[int], queues: list[str], allow_partial: bool) -> Plan[list[str]]:
        """Return queues of these that have deliverable messages on some of the shards: those of the first round with a
        queue. With few queues and shards, one round reads all. None are returned if others have taken the messages.
        """
        if not shards:
            return []
        if len(queues) == 1:
            return queues
        ready: set[str] = set()
        count = max(_ROUND_READS // len(queues), 1)
        while shards and not ready:
            places = [(shard, queue) for shard in shards[:count] for queue in queues]
            shards = shards[count:]
            replies = yield Round([self._exists(shard, [queue]) for shard, queue in places], allow_partial)
            found = zip(places, replies, strict=True)
            ready = {queue for (_, queue), reply in found if reply is not None and reply.value}
        return [queue for queue in queues if queue in ready]

    def _exists_on_all(self, queues: list[str]) -> list[Request]:
        """Return one read of each shard: whether any of the queues has deliverable messages there."""
        return [self._exists(shard, queues) for shard in range(self._context.shards)] if queues else []

    def _exists(self, shard: int, queues: Iterable[str]) -> Request:
        namespace = self._context.namespace
        return Request(shard, command=("EXISTS", *(queue_key(namespace, shard, queue, "ready") for queue in queues)))

    def _begin_to_read(self, now: float) -> None:
        """Let the next check read the closed queues that a sweep has chosen for this call, unless it has just read
        them.
        """
        self._chosen = self._waiter.closed_queues_to_read()
        recent: Collection[str] = set(self._queues) if now - self._closed_read_at < _RECENT_S else ()
        self._to_read = [queue for queue in self._chosen if queue not in recent]
        if self._to_read:
            self._must_check = True
        else:
            self._end_to_read()

    def _end_to_read(self) -> None:
        """Notify the waiters of the chosen queues that are open now."""
        if self._waiter is not None:
            self._waiter.on_read(self._chosen)
            self._waiter.open([queue for queue in self._chosen if self._is_open(queue)])
        self._chosen = self._to_read = ()

    def _cache_configs(self, stored: Iterable[tuple[str, bytes | None]]) -> None:
        for queue, data in stored:
            try:
                config = None if data is None else QueueConfig.from_bytes(queue, data)
            except DataLoss:
                if queue in self._queues:
                    raise
                continue
            if config is None or config.deleted:
                self._context.forget_queue(queue)
            else:
                self._context.cache_configs({queue: config})

    def _found(self, ready: list[str]) -> list[str]:
        for queue in ready:
            self._context.heads.forget_empty(queue)
        return list(ready)


def _ready_shards(replies: Sequence[Reply | None]) -> list[int]:
    """Return the shards with messages. There is a reply for each shard."""
    return [shard for shard, reply in enumerate(replies) if reply is not None and reply.value]
