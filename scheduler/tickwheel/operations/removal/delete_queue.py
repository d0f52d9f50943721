"""Deletes a queue: marks the queue, ends its messages, removes its keys, and at last removes its configuration.

Every step is bounded. A deletion that was cut off is repeated from its start. The order keeps the data consistent:

1. The metadata shard marks the queue as `deleting`, and every shard learns the new version. Since then, every shard
   refuses enqueue and dequeue. Older clients see a queue that is blocked for both. Without ``purge``, the deletion then
   checks that all messages are finished. If they are not, or if their counters are damaged, the deletion removes the
   mark, and the queue has its former blocks again, also if the program that stored the mark was cut off.
2. The purge (`purge.py`) ends all messages by events.
3. In a namespace with the history `relay`, the deletion fails until the relay has published these events: the relay
   needs the name of the queue.
4. Every shard removes the keys of the queue, if the queue has no messages there.
5. The metadata shard replaces the configuration by a placeholder for the number of the queue (`queue_numbers.py`).
"""

from tickwheel.errors import DataLoss, QueueNotEmpty
from tickwheel.model import validation
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.answered_calls import run_once
from tickwheel.operations.context import RELAYED, NamespaceContext
from tickwheel.operations.dispatch import call_metadata_shard, call_shards
from tickwheel.operations.inspect import counts
from tickwheel.operations.queues import configure, publish_config
from tickwheel.operations.removal.purge import Purge, not_deleting_error
from tickwheel.operations.removal.queue_numbers import numbers_in_history, placeholder_name, placeholder_settings
from tickwheel.operations.sessions import Sessions
from tickwheel.plan import Plan, Request

_FINISHED = ("completed", "cancelled")
_END = "end"


class QueueDeletion:
    """A position in the deletion of one queue."""

    def __init__(self, context: NamespaceContext, queue: str, purge: bool, token: str = "") -> None:
        """Start a deletion, or continue an earlier deletion from its `token`. Raises InvalidArgument.

        ``purge`` also deletes a queue with messages that are not finished.
        """
        self._context = context
        self._queue = queue
        self._purges = validation.boolean("purge", purge)
        self._has_begun = self._is_continued = bool(token)
        self._purge = Purge.of_deletion(context, queue, "" if token == _END else token)
        self._purge.ended = token == _END
        self.ended = False

    @property
    def token(self) -> str:
        """The position of the deletion; empty at the end."""
        return "" if self.ended else self._purge.token or _END

    def next(self, sessions: Sessions | None = None) -> Plan[int]:
        """Take the next step. Return the number of messages that the step has removed."""
        if not self._has_begun:
            yield from run_once(self._context, self._queue, sessions, self._mark)
            self._has_begun = True
            return 0
        if not self._purge.ended:
            return (yield from self._purge.next(sessions))
        yield from run_once(self._context, self._queue, sessions, self._finish)
        self.ended = True
        return 0

    def _mark(self) -> Plan[None]:
        """Mark the queue as `deleting`.

        Without ``purge``, raises QueueNotEmpty if messages are not finished, and DataLoss if the counters are damaged.
        """
        context, queue = self._context, self._queue
        while not (config := (yield from context.fetch_config(queue))).deleting:
            yield from self._check_finished()
            if (yield from configure(context, queue, config.marked_for_deletion(), config.version)):
                break
        marked = yield from publish_config(context, queue)
        try:
            # Other programs may have enqueued messages before the shards knew the mark. The program that stored the
            # mark may have ended before this check.
            yield from self._check_finished()
        except (QueueNotEmpty, DataLoss):
            if marked.deleting:
                yield from configure(context, queue, marked.unmarked(), marked.version)
                yield from publish_config(context, queue)
            raise

    def _check_finished(self) -> Plan[None]:
        if self._purges:
            return
        by_state = yield from counts(self._context, self._queue)
        left = {state: count for state, count in by_state.items() if count and state not in _FINISHED}
        if left:
            described = ", ".join(f"{count:,} {state}" for state, count in left.items())
            raise QueueNotEmpty(
                f"queue {self._queue!r} has messages that are not finished: {described}; let workers finish them, or"
                " delete the queue with purge=True (--purge), which cancels all messages: their workers lose their"
                " leases"
            )

    def _finish(self) -> Plan[None]:
        context, queue = self._context, self._queue
        config = yield from context.fetch_config(queue)
        self._check_deleting(config)
        if context.history >= RELAYED and config.number in (yield from numbers_in_history(context)):
            raise QueueNotEmpty(
                f"queue {queue!r} has events that are not yet relayed to Kafka: the queue stays blocked until then;"
                " check that the relay runs, and delete the queue again"
            )

        def build(config: QueueConfig, shard: int) -> Request:
            self._check_deleting(config)
            args: list[bytes | int | str] = [config.packed_version, 0 if self._purges else 1]
            return Request(shard, context.call("drop_queue", shard, queue, args), durable=True)

        replies = yield from call_shards(context, queue, range(context.shards), build)
        left = sum(reply.value for reply in replies)
        if left:
            raise QueueNotEmpty(
                f"queue {queue!r} still has {left:,} messages after the purge: another program works on the queue, or"
                " its counts are damaged; delete the queue again, with purge=True (--purge) if this error remains"
            )
        # The shards accepted this version.
        config = yield from context.config(queue)
        args: list[bytes | int | str] = [
            queue,
            config.version,
            placeholder_name(config),
            placeholder_settings(),
            context.shards,
        ]
        reply = yield from call_metadata_shard(context, "delete_queue", args)
        if reply.value[1]:
            raise not_deleting_error(queue, is_continued=False)
        context.forget_queue(queue)

    def _check_deleting(self, config: QueueConfig) -> None:
        if not config.deleting:
            raise not_deleting_error(self._queue, self._is_continued)
