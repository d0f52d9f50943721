"""Purge: ends and removes the messages of a queue, page by page, whatever their retention is."""

import re
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Self

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import ScriptCall, call_shards_once
from tickwheel.operations.page_token import START, format_page_token, parse_page_token
from tickwheel.operations.sessions import RequestSessions, Sessions
from tickwheel.plan import Plan
from tickwheel.storage.record import State

PURGE_STATES = tuple(state.label for state in State if state is not State.RUNNING)
_PURGE = Struct(">BHHI")
_COUNT = Struct(">I")
_PAGE = 250
# A page has fewer than 65,536 messages.
_REPLY = re.compile(rb"\0\0(?s:.{2})(?:[0-9a-f]{8}-)?[0-9]*")
# The end of a deletion's token if its present walk has removed messages.
_HAS_REMOVED = "+"


class Purge:
    """A position in the purge of one queue.

    A message that is in one of the states during the whole purge is removed. A message that is enqueued or changes its
    state during the purge may stay. The purge of a deletion repeats its walk through the shards until a whole walk
    removes nothing.

    The token alone chooses the shard of a page, also if this shard has no messages. So a late copy of a call reaches
    the shard that has stored the answer to the call, and never removes messages of another shard.
    """

    def __init__(self, context: NamespaceContext, queue: str, states: Iterable[str] | None, token: str = "") -> None:
        """Start a purge, or continue an earlier purge from its `token`. Raises InvalidArgument."""
        self._context = context
        self._queue = queue
        labels = check_states(states)
        self._mask = sum(1 << state for state in State if state.label in labels)
        # For a deletion: raises the error if the configuration is not that of the deletion.
        self._check: Callable[[QueueConfig], None] | None = None
        # Whether the present walk of a deletion has removed messages.
        self._has_removed = False
        self._shard, self._cursor = parse_page_token(token, context.shards)
        self.ended = False

    @classmethod
    def of_deletion(
        cls, context: NamespaceContext, queue: str, check: Callable[[QueueConfig], None], token: str = ""
    ) -> Self:
        """Return the purge of a queue that is being deleted: of all messages, also those that are Running.

        ``check`` raises an error if the configuration of the queue is not that of the deletion.
        """
        purge = cls(context, queue, None, token.removesuffix(_HAS_REMOVED))
        purge._mask |= 1 << State.RUNNING
        purge._check = check
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

        def build(config: QueueConfig, _: int, session: bytes) -> ScriptCall:
            if self._check is not None:
                self._check(config)
            most = limits.CALL_MESSAGES if config.exclusive_key is None else limits.CALL_INDEXED
            params = _PURGE.pack(self._mask, _PAGE, most, limits.CALL_ENTRIES)
            return "purge", [config.context(self._context.history), session, params, self._cursor]

        # A message that is purged twice is gone, so a call whose session has expired is simply executed again.
        [reply] = yield from call_shards_once(self._context, self._queue, [self._shard], build, sessions, reopens=True)
        if not isinstance(reply.value, bytes) or not _REPLY.fullmatch(reply.value):
            if not isinstance(sessions, RequestSessions):
                raise ValueError(reply.value)
            raise InvalidArgument(
                "the request_id belongs to another call: keep the name in it, and use a new number for each different"
                " call"
            )
        self._cursor = reply.value[_COUNT.size :]
        removed: int = _COUNT.unpack_from(reply.value)[0]
        self._has_removed |= self._check is not None and removed > 0
        if not self._cursor:
            self._begin_next_shard()
        return removed

    def _begin_next_shard(self) -> None:
        self._shard, self._cursor = self._shard + 1, START
        if self._shard == self._context.shards:
            self.ended = not self._has_removed
            self._shard, self._has_removed = 0, False


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
