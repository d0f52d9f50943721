"""Scan of all messages of a queue, page by page, in no particular order. For people and tools, not for workers."""

from struct import Struct

from tickwheel.model import validation
from tickwheel.model.message import MessageView
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.inspect import raise_if_damaged, to_message_view
from tickwheel.operations.page_token import format_page_token, parse_page_token
from tickwheel.plan import Plan, Request, pairs_from_flat, send_request
from tickwheel.storage.keys import shard_key
from tickwheel.storage.record import BODY, State, body_field

_NUMBER = Struct(">H")
_PAGE = 500


class Scan:
    """A position in the scan of one queue.

    A message that exists during the whole scan is returned. A message that is created or deleted during the scan may or
    may not be returned.
    """

    def __init__(self, context: NamespaceContext, queue: str, state: str | None, token: str = "") -> None:
        """Start a scan, or continue an earlier scan from its `token`. Raises InvalidArgument."""
        self._context = context
        self._queue = queue
        labels = {member.label: member for member in State}
        self._state = None if state is None else labels[validation.one_of("state", state, labels)]
        self._shard, self._cursor = parse_page_token(token, context.shards)
        self.ended = False

    @property
    def token(self) -> str:
        """The position of the scan; empty at the end."""
        return "" if self.ended else format_page_token(self._shard, self._cursor)

    def next(self) -> Plan[list[MessageView]]:
        """Return the next page. A page can be empty before the end."""
        context = self._context
        config = yield from context.config(self._queue)
        prefix = _NUMBER.pack(config.number)
        key = shard_key(context.namespace, self._shard, "messages")
        pattern = b"".join(b"\\" + bytes([byte]) for byte in prefix) + b"*"
        command = ("HSCAN", key, self._cursor, "MATCH", pattern, "COUNT", _PAGE)
        reply = yield from send_request(Request(self._shard, command=command))
        self._cursor, flat = reply.value
        views = []
        for name, stored in pairs_from_flat(flat):
            with raise_if_damaged(self._queue, name[2:]):
                if self._state is not None and stored[0] != self._state:
                    continue
                payload_field = body_field(name, stored) if stored[1] & BODY else None
            body = b""
            if payload_field is not None:
                bodies = shard_key(context.namespace, self._shard, "bodies")
                body = (
                    yield from send_request(Request(self._shard, command=("HGET", bodies, payload_field)))
                ).value or b""
            views.append(to_message_view(self._queue, name[2:], stored, body, config.exclusive_key is not None))
        if self._cursor == b"0":
            self._shard += 1
            self.ended = self._shard >= context.shards
        return views
