"""A walk over all messages of a queue, page by page, in no order. For people and tools, not for workers."""

import re
from struct import Struct

from tickwheel.errors import InvalidArgument
from tickwheel.model import validation as arguments
from tickwheel.model.message import MessageView
from tickwheel.operations.context import Core
from tickwheel.operations.inspect import damage_named, view
from tickwheel.plan import Plan, Request, one, pairwise
from tickwheel.storage.keys import shard_key
from tickwheel.storage.record import BODY, State, body_field

_NUMBER = Struct(">H")
_PAGE = 500
_TOKEN = re.compile(r"([0-9]{1,5}):([0-9]{1,20})")


class Scan:
    """Where the walk stands. What is there from start to end is seen; what comes or goes on the way may be."""

    def __init__(self, core: Core, queue: str, state: str | None, token: str = "") -> None:
        """``token`` is where a walk stood: it goes on from there. Raises InvalidArgument for what is none."""
        self._core = core
        self._queue = queue
        labels = {each.label: each for each in State}
        self._state = None if state is None else labels[arguments.one_of("state", state, labels)]
        self._shard, self._cursor = _place(token, core.shards)
        self.ended = False

    @property
    def token(self) -> str:
        """Where it stands; empty at the end."""
        return "" if self.ended else f"{self._shard}:{self._cursor.decode()}"

    def next(self) -> Plan[list[MessageView]]:
        """The next page; it may be empty before the end."""
        core = self._core
        config = yield from core.config(self._queue)
        prefix = _NUMBER.pack(config.number)
        key = shard_key(core.namespace, self._shard, "messages")
        pattern = b"".join(b"\\" + bytes([byte]) for byte in prefix) + b"*"
        command = ("HSCAN", key, self._cursor, "MATCH", pattern, "COUNT", _PAGE)
        reply = yield from one(Request(self._shard, command=command))
        self._cursor, flat = reply.value
        found = []
        for name, stored in pairwise(flat):
            with damage_named(self._queue, name[2:]):
                if self._state is not None and stored[0] != self._state:
                    continue
                found_at = body_field(name, stored) if stored[1] & BODY else None
            body = b""
            if found_at is not None:
                bodies = shard_key(core.namespace, self._shard, "bodies")
                body = (yield from one(Request(self._shard, command=("HGET", bodies, found_at)))).value or b""
            found.append(view(self._queue, name[2:], stored, body, config.exclusive_key is not None))
        if self._cursor == b"0":
            self._shard += 1
            self.ended = self._shard >= core.shards
        return found


def _place(token: str, shards: int) -> tuple[int, bytes]:
    if not token:
        return 0, b"0"
    if (found := _TOKEN.fullmatch(token)) is None or int(found[1]) >= shards:
        raise InvalidArgument(f"page_token must be what the page before it said, not {token!r:.80}")
    return int(found[1]), found[2].encode()
