"""Deletes a queue: marks the queue, ends its messages, removes its keys, and at last removes its configuration.

Every step is bounded, except the last one if counters are damaged. A deletion that was cut off is repeated from its
start. The order keeps the data consistent:

1. The metadata shard marks the queue as `deleting`, and every shard learns the new version. Since then, every shard
   refuses enqueue and dequeue. Older clients see a queue that is blocked for both. Without ``purge``, the deletion then
   checks that all messages are finished. If they are not, or if their counters are damaged, the deletion removes the
   mark, and the queue has its former blocks again, also if the program that stored the mark was cut off.
2. The purge (`purge.py`) ends all messages by events.
3. In a namespace with the history `relay`, the deletion fails until the relay has published these events: the relay
   needs the name of the queue.
4. Every shard removes the keys of the queue, if its counts show no messages of the queue. Otherwise, either the counts
   are damaged, or the token skips a part of the purge, because a caller of the service has changed the token. So the
   deletion purges the queue again. If this finds no message, the counts are damaged, and the shards ignore them.
5. The metadata shard replaces the configuration by a placeholder for the number of the queue (`queue_numbers.py`).

The token of a deletion has the version, the uid and the number of the marked configuration. Every later step compares
the first two. So a late copy of a step changes neither a queue that was created again, nor one whose deletion was
undone. The last two are the name of the placeholder: if the queue is gone, the last step confirms with it that this
deletion has removed the queue, so that no invented token is answered as the end of a deletion.
"""

import re
from functools import partial

from tickwheel.errors import DataLoss, InvalidArgument, QueueNotEmpty, TickwheelError
from tickwheel.model import validation
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.validation import preview
from tickwheel.operations.answered_calls import ENDED, run_once
from tickwheel.operations.context import RELAYED, NamespaceContext
from tickwheel.operations.dispatch import call_metadata_shard, call_shards
from tickwheel.operations.inspect import counts
from tickwheel.operations.queues import configure, publish_config
from tickwheel.operations.removal.purge import Purge
from tickwheel.operations.removal.queue_numbers import (
    numbers_in_history,
    placeholder_name,
    placeholder_settings,
    read_row,
)
from tickwheel.operations.sessions import Sessions
from tickwheel.plan import Plan, Request

_FINISHED = ("completed", "cancelled")
# The mark, then the position of the purge, or _END after the purge.
_TOKEN = re.compile(r"([0-9a-f]{20})/(.+)")
_VERSION_BYTES = 8
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
        # The version, the uid and the number of the marked configuration; empty before the first step.
        self._mark = b""
        self._is_continued = bool(token)
        position = ""
        if token:
            if (match := _TOKEN.fullmatch(token)) is None:
                raise InvalidArgument(
                    f"page_token must be the token of the previous page, not {preview(token)}: begin a new deletion"
                    " without a page_token if the token is of an earlier version"
                )
            self._mark, position = bytes.fromhex(match[1]), match[2]
        self._purge = Purge.of_deletion(context, queue, self._check_mark, "" if position == _END else position)
        self._purge.ended = position == _END
        self.ended = False

    @property
    def token(self) -> str:
        """The position of the deletion; empty at the end."""
        return "" if self.ended else f"{self._mark.hex()}/{self._purge.token or _END}"

    def next(self, sessions: Sessions | None = None) -> Plan[int]:
        """Take the next step. Return the number of messages that the step has removed."""
        context, queue = self._context, self._queue
        if not self._mark:
            yield from self._begin(sessions)
            return 0
        if not self._purge.ended:
            # The cached configuration may be older than the mark, or newer.
            self._check_mark((yield from context.fetch_config(queue)))
            return (yield from self._purge.next(sessions))
        if (yield from run_once(context, queue, sessions, self._finish)) is None:
            removed = yield from self._purge_again()
            if removed:
                return removed
            yield from run_once(context, queue, sessions, partial(self._finish, counts_are_damaged=True))
        self.ended = True
        return 0

    def _purge_again(self) -> Plan[int]:
        """Begin a new purge, up to the first page with messages, and return their number. It is 0 if there are none.

        The pages must be part of one step: a token that continues the search could skip messages.
        """
        purge = Purge.of_deletion(self._context, self._queue, self._check_mark)
        removed = 0
        while not removed and not purge.ended:
            removed = yield from purge.next()
        self._purge = purge
        return removed

    def _begin(self, sessions: Sessions | None) -> Plan[None]:
        """Mark the queue. Repeat this if other programs change the queue meanwhile.

        The queue is read before the call is registered. So a late copy of an answered call marks no queue that was
        created, or whose deletion was undone, after the answer.
        """
        context, queue = self._context, self._queue
        first = config = yield from context.load_config(queue)
        mark: bytes | None = None
        while mark is None:
            mark = yield from run_once(context, queue, sessions, partial(self._mark_queue, first, config))
            if mark is None:
                config = yield from context.load_config(queue)
        self._mark = mark

    def _mark_queue(self, first: QueueConfig | None, config: QueueConfig | None) -> Plan[bytes | None]:
        """Mark the queue as `deleting`, and return the mark, or None if another program has changed the queue.

        ``first`` is the configuration at the start of the call, and ``config`` the last one that was read.
        Without ``purge``, raises QueueNotEmpty if messages are not finished, and DataLoss if the counters are damaged.
        """
        context, queue = self._context, self._queue
        if first is None or config is None:
            raise context.queue_not_found_error(queue)
        if config.uid != first.uid:
            raise context.queue_recreated_error(queue, config)
        if not config.deleting:
            yield from self._check_finished()
            if not (yield from configure(context, queue, config.marked_for_deletion(), config)):
                return None
        marked = yield from publish_config(context, queue)
        if marked.uid != config.uid or not marked.deleting:
            raise self._not_deleting_error()
        try:
            # Other programs may have enqueued messages before the shards knew the mark. The program that stored the
            # mark may have ended before this check.
            yield from self._check_finished()
        except (QueueNotEmpty, DataLoss):
            yield from configure(context, queue, marked.unmarked(), marked)
            yield from publish_config(context, queue)
            raise
        return marked.packed_version + marked.number.to_bytes(2)

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

    def _finish(self, counts_are_damaged: bool = False) -> Plan[bytes | None]:
        """Remove the queue. Return None if the counts show messages, and a purge must check whether this is true."""
        context, queue = self._context, self._queue
        config = yield from context.load_config(queue)
        if config is None or config.uid != self._version[4:]:
            yield from self._check_deleted()
            return ENDED
        self._check_mark(config)
        if context.history >= RELAYED and config.number in (yield from numbers_in_history(context)):
            raise QueueNotEmpty(
                f"queue {queue!r} has events that are not yet relayed to Kafka: the queue stays blocked until then;"
                " check that the relay runs, and delete the queue again"
            )

        def build(config: QueueConfig, shard: int) -> Request:
            self._check_mark(config)
            args: list[bytes | int | str] = [self._version, 0 if counts_are_damaged else 1]
            return Request(shard, context.call("drop_queue", shard, queue, args), durable=True)

        replies = yield from call_shards(context, queue, range(context.shards), build)
        left = sum(reply.value for reply in replies)
        if left and self._purges:
            return None
        if left:
            raise QueueNotEmpty(
                f"queue {queue!r} still has {left:,} messages after the purge: another program works on the queue, or"
                " its counts are damaged; delete the queue again, with purge=True (--purge) if this error remains"
            )
        args: list[bytes | int | str] = [
            *(queue, self._version, placeholder_name(config.number, config.uid), placeholder_settings(), context.shards)
        ]
        reply = yield from call_metadata_shard(context, "delete_queue", args)
        if reply.value[1]:
            raise self._not_deleting_error()
        context.forget_queue(queue)
        return ENDED

    @property
    def _version(self) -> bytes:
        """The version and the uid of the marked configuration."""
        return self._mark[:_VERSION_BYTES]

    def _check_deleted(self) -> Plan[None]:
        """Check that another process has taken the last step of this deletion. Raises InvalidArgument."""
        number, uid = int.from_bytes(self._mark[_VERSION_BYTES:]), self._version[4:]
        if (yield from read_row(self._context, placeholder_name(number, uid))) is None:
            raise self._not_deleting_error()

    def _check_mark(self, config: QueueConfig) -> None:
        if not config.deleting or config.packed_version != self._version:
            raise self._not_deleting_error()

    def _not_deleting_error(self) -> TickwheelError:
        if self._is_continued:
            return InvalidArgument(
                f"page_token continues no deletion: queue {self._queue!r} is not being deleted, or another deletion has"
                " begun. The deletion of this token has ended, or another program has updated or unblocked the queue"
                " since then; begin a new deletion without a page_token"
            )
        return TickwheelError(
            f"queue {self._queue!r} is not being deleted any more: another program has updated or unblocked the queue"
            " during the deletion; end this program, and delete the queue again"
        )
