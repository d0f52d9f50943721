"""Scan of all messages of a queue, page by page, in no particular order. For people and tools, not for workers."""

from struct import Struct

from tickwheel import limits
from tickwheel.model import validation
from tickwheel.model.message import MessageView
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.inspect import raise_if_damaged, to_message_view
from tickwheel.operations.page_token import START, format_page_token, parse_page_token
from tickwheel.plan import Pause, Plan, Request, Round, pairs_from_flat, send_request
from tickwheel.storage.keys import shard_key
from tickwheel.storage.record import BODY, State, body_field

_NUMBER = Struct(">H")
_PAGE = 500
# Messages that are decoded without a pause, so that other calls of an event loop go on.
_VIEWS_AT_ONCE = 50


class Scan:
    """A position in the scan of one queue.

    A message that exists during the whole scan is returned, possibly twice: if the server of a shard restarts or
    another server takes over, the scan of the shard starts from its first page. A message that is created or deleted
    during the scan may or may not be returned.
    """

    def __init__(
        self, context: NamespaceContext, queue: str, state: str | None, token: str = "", *, reads_payloads: bool = True
    ) -> None:
        """Start a scan, or continue an earlier scan from its `token`. Raises InvalidArgument.

        Unless ``reads_payloads`` is true, large payloads are not read: those that are not part of the record.
        """
        self._reads_payloads = reads_payloads
        self._context = context
        self._queue = queue
        labels = {member.label: member for member in State}
        self._state = None if state is None else labels[validation.one_of("state", state, labels)]
        self._shard, self._cursor = parse_page_token(token, context.shards)
        self.ended = False
        # The number of messages that have been read, including those of other states.
        self.records = 0

    @property
    def token(self) -> str:
        """The position of the scan; empty at the end."""
        return "" if self.ended else format_page_token(self._shard, self._cursor)

    def next(self) -> Plan[list[MessageView]]:
        """Return the next page, with about `PAGE_BYTES` of messages at most. A page can be empty before the end."""
        context = self._context
        # A cached configuration can be that of a former queue of this name, with another number.
        config = yield from context.fetch_config(self._queue)
        count, size = _PAGE, limits.PAGE_BYTES + 1
        while size > limits.PAGE_BYTES and count:
            call = context.call("scan", self._shard, self._queue, [_NUMBER.pack(config.number), self._cursor, count])
            flat, cursor = (yield from send_request(Request(self._shard, call))).value
            self.records += len(flat) // 2
            stored_page, fields = self._select(flat)
            size = sum(len(stored) for _, stored in stored_page) + (yield from self._measure(fields))
            # The messages are too large for one page: read a smaller one from the same position.
            count = min(count // 2, count * limits.PAGE_BYTES // max(size, 1))
        self._cursor = cursor
        payloads = yield from self._read_payloads(fields)
        exclusive = config.exclusive_key is not None
        views: list[MessageView] = []
        for name, stored in stored_page:
            if len(views) % _VIEWS_AT_ONCE == _VIEWS_AT_ONCE - 1:
                yield Pause(0)
            views.append(to_message_view(self._queue, name[2:], stored, payloads.get(name, b""), exclusive))
        if not self._cursor:
            self._shard, self._cursor = self._shard + 1, START
            self.ended = self._shard >= context.shards
        return views

    def _select(self, flat: list[bytes]) -> tuple[list[tuple[bytes, bytes]], dict[bytes, bytes]]:
        """Return names and records of the messages in the scan's state, and by name the fields of their payloads."""
        selected, fields = [], {}
        for name, stored in pairs_from_flat(flat):
            with raise_if_damaged(self._queue, name[2:]):
                if self._state is not None and stored[0] != self._state:
                    continue
                if self._reads_payloads and stored[1] & BODY:
                    fields[name] = body_field(name, stored)
            selected.append((name, stored))
        return selected, fields

    def _measure(self, fields: dict[bytes, bytes]) -> Plan[int]:
        """Return the number of bytes of the payloads."""
        if not fields:
            return 0
        replies = yield Round([self._request("HSTRLEN", field) for field in fields.values()])
        return sum(reply.value for reply in replies)

    def _read_payloads(self, fields: dict[bytes, bytes]) -> Plan[dict[bytes, bytes]]:
        """Return the payloads by the names of their messages, without those that are gone."""
        if not fields:
            return {}
        reply = yield from send_request(self._request("HMGET", *fields.values()))
        return {name: body for name, body in zip(fields, reply.value, strict=True) if body is not None}

    def _request(self, command: str, *fields: bytes) -> Request:
        bodies = shard_key(self._context.namespace, self._shard, "bodies")
        return Request(self._shard, command=(command, bodies, *fields))
