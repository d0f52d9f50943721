"""Purge: ends and removes the messages of a queue, page by page, whatever their retention is."""

import re
from collections.abc import Iterable
from struct import Struct

from tickwheel import limits
from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.model import validation
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.answered_calls import ENDED, answered_shards, record_end
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import ScriptCall, call_shards_once, confirm_earlier_changes
from tickwheel.operations.page_token import START, format_page_token, parse_page_token
from tickwheel.operations.sessions import RequestSessions, Sessions
from tickwheel.plan import Plan, Reply, Request, Round, pairs_from_flat
from tickwheel.storage.record import State

PURGE_STATES = tuple(state.label for state in State if state is not State.RUNNING)
_PURGE = Struct(">BHHI")
_COUNT = Struct(">I")
_PAGE = 250
# The end of a deletion's token if its present walk has removed messages.
_HAS_REMOVED = "+"
# Shards whose counts are read in one round.
_SHARDS_AT_ONCE = 64
# The bit of each state in the mask, by the state's field in the counters of a queue.
_BITS = {b"%d" % state: 1 << state for state in State}


class Purge:
    """A position in the purge of one queue.

    A message that is in one of the states during the whole purge is removed. A message that is enqueued or changes its
    state during the purge may stay. The purge of a deletion repeats its walk through the shards until their counters
    are 0, or a whole walk removes nothing, so that only damaged counters are left.
    """

    def __init__(self, context: NamespaceContext, queue: str, states: Iterable[str] | None, token: str = "") -> None:
        """Start a purge, or continue an earlier purge from its `token`. Raises InvalidArgument."""
        self._context = context
        self._queue = queue
        labels = check_states(states)
        self._mask = sum(1 << state for state in State if state.label in labels)
        self._is_deletion = False
        # Whether the present walk of a deletion has removed messages.
        self._has_removed = False
        self._is_continued = bool(token)
        self._shard, self._cursor = parse_page_token(token, context.shards)
        # Other shards than that of a cursor may be empty, and are then skipped.
        self._is_in_shard = self._cursor != START
        self.ended = False

    @classmethod
    def of_deletion(cls, context: NamespaceContext, queue: str, token: str = "") -> "Purge":
        """Return the purge of a queue that is being deleted: of all messages, also those that are Running."""
        purge = cls(context, queue, None, token.removesuffix(_HAS_REMOVED))
        purge._mask |= 1 << State.RUNNING
        purge._is_deletion = True
        purge._has_removed = token.endswith(_HAS_REMOVED)
        return purge

    @property
    def token(self) -> str:
        """The position of the purge; empty at the end."""
        if self.ended:
            return ""
        return format_page_token(self._shard, self._cursor) + (_HAS_REMOVED if self._has_removed else "")

    def next(self, sessions: Sessions | None = None) -> Plan[int]:
        """Remove the messages of the next page, and return their number. It can be 0 before the end."""
        if isinstance(sessions, RequestSessions):
            yield from self._find_answer(sessions)
        if not self._is_in_shard:
            yield from self._skip_empty_shards()
            if self.ended:
                if isinstance(sessions, RequestSessions):
                    yield from record_end(self._context, self._queue, sessions)
                return 0

        def build(config: QueueConfig, _: int, session: bytes) -> ScriptCall:
            self._check_deleting(config)
            most = limits.CALL_MESSAGES if config.exclusive_key is None else limits.CALL_INDEXED
            params = _PURGE.pack(self._mask, _PAGE, most, limits.CALL_ENTRIES)
            return "purge", [config.context(self._context.history), session, params, self._cursor]

        # A message that is purged twice is gone, so a call whose session has expired is simply executed again.
        [reply] = yield from call_shards_once(self._context, self._queue, [self._shard], build, sessions, reopens=True)
        if reply.value == ENDED:
            # In the first call, all remaining shards were empty.
            self._has_removed = False
            self._advance(self._context.shards)
            return 0
        if not isinstance(reply.value, bytes) or not re.fullmatch(rb"(?s:.{4})(?:[0-9a-f]{8}-)?[0-9]*", reply.value):
            raise InvalidArgument(
                "the request_id belongs to another call: keep the name in it, and use a new number for each different"
                " call"
            )
        self._cursor, self._is_in_shard = reply.value[_COUNT.size :], True
        removed: int = _COUNT.unpack_from(reply.value)[0]
        self._has_removed |= self._is_deletion and removed > 0
        if not self._cursor:
            self._advance(self._shard + 1)
        return removed

    def _find_answer(self, sessions: RequestSessions) -> Plan[None]:
        """Register the call. If it is a repeated call, move to the shard that has stored the answer.

        This shard may be empty by now. Without its answer, the repeated call would purge the next shard.
        """
        answered = yield from answered_shards(self._context, self._queue, sessions.call, registers=True)
        sessions.is_registered = True
        for shard in answered:
            self._advance(shard)
            self._is_in_shard = True

    def _skip_empty_shards(self) -> Plan[None]:
        """Move to the next shard that has messages in one of the states."""
        # The script `counts` does not compare configurations.
        known = self._context.configs.get(self._queue)
        config = yield from self._context.fetch_config(self._queue)
        if known is not None and known.uid != config.uid:
            raise self._context.queue_recreated_error(self._queue, config)
        self._check_deleting(config)
        while not self.ended:
            shards = range(self._shard, min(self._shard + _SHARDS_AT_ONCE, self._context.shards))
            replies = yield Round(
                [Request(shard, self._context.call("counts", shard, self._queue, [])) for shard in shards]
            )
            filled = (shard for shard, reply in zip(shards, replies, strict=True) if self._may_have_messages(reply))
            following = next(filled, shards.stop)
            yield from confirm_earlier_changes(self._context, range(self._shard, following))
            self._advance(following)
            if following < shards.stop:
                return

    def _may_have_messages(self, counts: Reply) -> bool:
        # An unreadable counter does not prove that there are no messages.
        return any(
            count != b"0" and _BITS.get(state, 0) & self._mask for state, count in pairs_from_flat(counts.value[1])
        )

    def _check_deleting(self, config: QueueConfig) -> None:
        if self._is_deletion and not config.deleting:
            raise not_deleting_error(self._queue, self._is_continued)

    def _advance(self, shard: int) -> None:
        if shard >= self._context.shards and self._has_removed:
            # The next walk skips the shards whose counters are 0.
            shard, self._has_removed = 0, False
        self._shard, self._cursor, self._is_in_shard = shard, START, False
        self.ended = shard >= self._context.shards


def check_states(states: Iterable[str] | None) -> tuple[str, ...]:
    """Return the states of a purge; by default all but Running. Raises InvalidArgument."""
    if states is None:
        return PURGE_STATES
    if not isinstance(states, list | tuple | set | frozenset):
        raise InvalidArgument(f"states must be a list, tuple or set of str, not {validation.preview(states)}")
    if not states:
        raise InvalidArgument("states must not be empty: omit states to purge all messages that are not running")
    for state in states:
        if isinstance(state, str) and state == State.RUNNING.label:
            raise InvalidArgument(
                "states must not contain 'running': a purge leaves the messages of working workers; cancel these"
                " messages by their ids, or delete the queue with purge=True (--purge)"
            )
        validation.one_of("a state of states", state, PURGE_STATES)
    return tuple(label for label in PURGE_STATES if label in states)


def not_deleting_error(queue: str, is_continued: bool) -> TickwheelError:
    """Return the error for a step of a deletion if the queue is not being deleted.

    ``is_continued``: the step has a token, perhaps of an earlier deletion. Otherwise, another program has undone the
    deletion.
    """
    if is_continued:
        return InvalidArgument(
            f"page_token continues no deletion: queue {queue!r} is not being deleted. The deletion of this token has"
            " ended, or another program has updated or unblocked the queue since then; begin a new deletion without a"
            " page_token"
        )
    return TickwheelError(
        f"queue {queue!r} is not being deleted any more: another program has updated or unblocked the queue during the"
        " deletion; end this program, and delete the queue again"
    )
