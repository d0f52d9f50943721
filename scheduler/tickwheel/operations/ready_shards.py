"""What a dequeue knows, or finds out by cheap reads, before it calls the script: where something may be for it."""

from collections.abc import Collection, Mapping
from itertools import starmap

from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Command, Plan, Request, Round
from tickwheel.storage import record
from tickwheel.storage.keys import queue_key

# Of so many queues and filters is it known that nothing was there; then all is forgotten.
_MAX_KNOWN_EMPTY = 1_000


class ReadyShards:
    """Of one queue, for one dequeue call; the client's `HeadCache` keeps the results."""

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
        # Whether shards are not asked because of what was heard of them a moment ago.
        self._used_cached_heads = False
        # That nothing was ready in the queue, and that nothing with these pairs was.
        self._empty, self._unmatched = (queue, b""), (queue, where)

    def shards(self, config: QueueConfig, unanswered: bool, final: bool) -> Plan[list[int]]:
        """The shards to ask, most urgent head first, as far as that is known. A call that was sent before, perhaps, and
        is ``unanswered``, is asked again. That nothing is ready is a ``final`` answer only of all shards together.
        """
        context = self._context
        if context.shards == 1:
            # A poller that found nothing the last time asks for the cost of a PING or two before it calls the script.
            ordinary = not (self._is_recorded or unanswered or config.dequeue_blocked)
            if ordinary and not (yield from self._may_deliver(config)):
                return []
            return [0]
        fresh = context.heads.recent(self._queue)
        ready = {shard: deadline for shard, deadline in fresh.items() if deadline is not None}
        changed = False
        # A request is one call on each shard, so it cannot come back to those that were believed to be empty.
        self._used_cached_heads = bool(ready) and len(ready) < len(fresh) == context.shards and not self._is_request
        if not self._used_cached_heads and len(ready) < context.shards:
            ready, changed = yield from self._fetch_heads(config, final)
        ordered = _most_urgent_first(ready)
        return [0] if not ordered and (changed or self.must_call_script(config)) else ordered

    def may_have_messages(self, config: QueueConfig) -> Plan[bool]:
        """Whether any shard may have something for the call, or refuses it. What it finds is not looked for again."""
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
        """The shards to ask besides: where something is by now, and nothing was believed to be."""
        if not self._used_cached_heads:
            return []
        ready, _ = yield from self._fetch_heads(config, final)
        return [shard for shard in _most_urgent_first(ready) if shard not in called_shards]

    def must_call_script(self, config: QueueConfig) -> bool:
        """Whether a shard is asked though nothing is ready: a request that may be sent again leaves a trace, so that a
        late copy of it leases nothing to nobody; and a queue known as blocked says so.
        """
        return self._is_recorded or config.dequeue_blocked

    def record_empty(self, *, matching: bool) -> None:
        """The script found nothing ready at all, or, where something was, nothing ``matching``."""
        idle = self._context.heads.known_empty
        if len(idle) >= _MAX_KNOWN_EMPTY:
            idle.clear()
        idle -= {self._empty}
        idle.add(self._unmatched if matching else self._empty)

    def forget_empty(self) -> None:
        """Something was there, or has come since."""
        self._context.heads.known_empty -= {self._empty, self._unmatched}

    def _fetch_heads(self, config: QueueConfig, final: bool) -> Plan[tuple[dict[int, int], bool]]:
        """The most urgent deadline of every shard, and whether the queue has another configuration by now: one round,
        which only reads. Shards whose server is away hold up nobody whom others have something for.
        """
        context = self._context
        commands = [
            Request(
                shard, command=("ZRANGE", queue_key(context.namespace, shard, self._queue, "ready"), 0, 0, "WITHSCORES")
            )
            for shard in range(context.shards)
        ]
        requests = [*commands, self._version_request()]
        answers = yield Round(requests, allow_partial=True)
        if final and None in answers and not any(answer and answer.value for answer in answers[:-1]):
            answers = yield Round(requests)
        *replies, version = answers
        heads = {}
        for shard, reply in enumerate(replies):
            deadline = int(float(reply.value[1])) if reply and reply.value else None
            context.heads.record(self._queue, shard, deadline)
            if deadline is not None:
                heads[shard] = deadline
        return heads, version is not None and version.value != config.packed_version

    def _may_deliver(self, config: QueueConfig) -> Plan[bool]:
        """Whether something may be there for this call, as where the last one found something; or the queue has another
        configuration by now: it may be blocked, or gone.
        """
        keys = self._context.keys(0, self._queue)
        commands: list[Command]
        if self._empty in self._context.heads.known_empty:
            commands = [("EXISTS", keys["ready"])]
        elif self._unmatched in self._context.heads.known_empty:
            # Whoever can be delivered is in the index with each of its pairs.
            pairs = [packed for packed, _ in starmap(record.pair, self._filters.items())]
            commands = [
                ("ZRANGE", keys["pairs"], b"[" + pair, b"(" + pair + b"\xff", "BYLEX", "LIMIT", 0, 1) for pair in pairs
            ]
        else:
            return True
        *replies, version = yield Round(
            [*(Request(0, command=command) for command in commands), self._version_request()]
        )
        return all(reply.value for reply in replies) or version.value != config.packed_version

    def _version_request(self) -> Request:
        return Request(0, command=("HGET", self._context.keys(0, self._queue)["config"], "version"))


def _most_urgent_first(ready: Mapping[int, int]) -> list[int]:
    return sorted(ready, key=lambda shard: (ready[shard], shard))
