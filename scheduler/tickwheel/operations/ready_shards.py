"""Selects the shards that a dequeue calls, by their heads.

A *head* is the most urgent deadline of a queue on one shard. The heads come from recent replies (`head_cache.py`), or
from cheap reads before the script is called.
"""

from collections.abc import Collection, Mapping
from itertools import starmap

from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Command, Plan, Request, Round, send_request
from tickwheel.storage import record
from tickwheel.storage.keys import queue_key

# Maximum number of elements of `HeadCache.known_empty`. A full set is cleared.
_MAX_KNOWN_EMPTY = 1_000


class ReadyShards:
    """The shards of one queue that may have messages for one dequeue call. The client's `HeadCache` keeps the results.

    ``is_request``: the call has a request id. ``is_recorded``: the shard must record an empty answer, too.
    """

    def __init__(
        self,
        context: NamespaceContext,
        queue: str,
        filters: Mapping[str, str],
        where: bytes,
        *,
        is_request: bool,
        is_recorded: bool,
    ) -> None:
        self._context = context
        self._queue = queue
        self._filters = filters
        self._is_request = is_request
        self._is_recorded = is_recorded
        self.is_partial = False
        """Whether a shard did not answer, and the dequeue went on without it."""
        # Whether `shards` left out shards that are empty according to the cached heads.
        self._used_cached_heads = False
        # Elements of `HeadCache.known_empty`: `_empty` means that nothing is ready in the queue, `_unmatched` that
        # nothing matches this filter.
        self._empty, self._unmatched = (queue, b""), (queue, where)

    def shards(self, config: QueueConfig, unanswered: bool, final: bool) -> Plan[list[int]]:
        """Return the shards to call, the most urgent known head first.

        ``unanswered``: an earlier call of the session had no answer, so a namespace of one shard must call the script.
        ``final``: an empty answer ends the dequeue, so it is correct only if all shards have replied.
        """
        context = self._context
        if context.shards == 1:
            # After an empty dequeue, a round of reads, each as cheap as a PING, replaces the call of the script.
            ordinary = not (self._is_recorded or unanswered or config.dequeue_blocked)
            if ordinary and not (yield from self._may_deliver(config)):
                return []
            return [0]
        fresh = context.heads.recent(self._queue)
        ready = {shard: deadline for shard, deadline in fresh.items() if deadline is not None}
        changed = False
        # A call with a request id does not rely on cached empty heads, so `more_shards` has no shards to add for it.
        self._used_cached_heads = bool(ready) and len(ready) < len(fresh) == context.shards and not self._is_request
        if not self._used_cached_heads and len(ready) < context.shards:
            ready, changed = yield from self._fetch_heads(config, final)
        ordered = _most_urgent_first(ready)
        return [0] if not ordered and (changed or self.must_call_script(config)) else ordered

    def may_have_messages(self, config: QueueConfig) -> Plan[bool]:
        """Return whether any shard may have messages for the call, or would reject the call.

        With several shards, the heads that are read here are cached for `shards`.
        """
        if config.dequeue_blocked:
            return True
        if self._context.shards == 1:
            may_deliver = yield from self._may_deliver(config)
            if may_deliver:
                self.forget_empty()
            return may_deliver
        if any(deadline is not None for deadline in self._context.heads.recent(self._queue).values()):
            return True
        ready, changed = yield from self._fetch_heads(config, final=True)
        return bool(ready) or changed

    def more_shards(self, config: QueueConfig, called_shards: Collection[int], final: bool) -> Plan[list[int]]:
        """Return further shards to call: the cache reported them as empty, and a read shows that they have messages."""
        if not self._used_cached_heads:
            return []
        ready, _ = yield from self._fetch_heads(config, final)
        return [shard for shard in _most_urgent_first(ready) if shard not in called_shards]

    def must_call_script(self, config: QueueConfig) -> bool:
        """Return whether to call a shard even though nothing is ready.

        There are two cases. If the request may be a retry, the shard must record the empty answer, because a delayed
        copy of the request could otherwise lease messages that no client receives. If the queue is blocked, the script
        must raise the error.
        """
        return self._is_recorded or config.dequeue_blocked

    def must_search(self, config: QueueConfig, *, woken: bool) -> Plan[bool]:
        """Return whether to search even though another search found nothing, because the script may reject the call.

        ``woken``: the sweep has woken the call. Then read from all shards, so that the process notices if a shard has
        moved, and subscribes again.
        """
        if woken:
            _, changed = yield from self._fetch_heads(config, final=False)
            return config.dequeue_blocked or changed
        version = yield from send_request(
            Request(0, command=("HGET", self._context.keys(0, self._queue)["config"], "version"))
        )
        return config.dequeue_blocked or version.value != config.packed_version

    def record_empty(self, *, matching: bool) -> None:
        """Record that the script found nothing ready, or, if ``matching``, nothing that matches the filter."""
        idle = self._context.heads.known_empty
        if len(idle) >= _MAX_KNOWN_EMPTY:
            idle.clear()
        idle -= {self._empty}
        idle.add(self._unmatched if matching else self._empty)

    def forget_empty(self) -> None:
        """Forget that the queue was empty: the script found messages, or a wake-up arrived."""
        self._context.heads.known_empty -= {self._empty, self._unmatched}

    def _fetch_heads(self, config: QueueConfig, final: bool) -> Plan[tuple[dict[int, int], bool]]:
        """Return the most urgent deadline of every shard with messages, and whether the queue's configuration changed.

        Sends one read-only round. An unreachable shard does not delay the call if another shard has messages. If no
        shard has messages and ``final`` is true, the round is repeated and raises the error of the unreachable shard.
        """
        context = self._context
        commands = [
            Request(
                shard, command=("ZRANGE", queue_key(context.namespace, shard, self._queue, "ready"), 0, 0, "WITHSCORES")
            )
            for shard in range(context.shards)
        ]
        requests = [*commands, Request(0, command=("HGET", context.keys(0, self._queue)["config"], "version"))]
        answers = yield Round(requests, allow_partial=True)
        if final and None in answers and not any(answer and answer.value for answer in answers[:-1]):
            answers = yield Round(requests)
        self.is_partial |= None in answers
        *replies, version = answers
        heads = {}
        for shard, reply in enumerate(replies):
            deadline = int(float(reply.value[1])) if reply and reply.value else None
            context.heads.record(self._queue, shard, deadline)
            if deadline is not None:
                heads[shard] = deadline
        return heads, version is not None and version.value != config.packed_version

    def _may_deliver(self, config: QueueConfig) -> Plan[bool]:
        """Return whether the only shard may have messages for this call, or the queue's configuration changed.

        A changed configuration counts because the queue may be blocked or deleted.
        """
        keys = self._context.keys(0, self._queue)
        commands: list[Command]
        if self._empty in self._context.heads.known_empty:
            commands = [("EXISTS", keys["ready"])]
        elif self._unmatched in self._context.heads.known_empty:
            # The index of pairs lists every ready message under each of its pairs.
            pairs = [packed for packed, _ in starmap(record.pair, self._filters.items())]
            commands = [
                ("ZRANGE", keys["pairs"], b"[" + pair, b"(" + pair + b"\xff", "BYLEX", "LIMIT", 0, 1) for pair in pairs
            ]
        else:
            return True
        commands.append(("HGET", keys["config"], "version"))
        *replies, version = yield Round([Request(0, command=command) for command in commands])
        return all(reply.value for reply in replies) or version.value != config.packed_version


def _most_urgent_first(ready: Mapping[int, int]) -> list[int]:
    return sorted(ready, key=lambda shard: (ready[shard], shard))
