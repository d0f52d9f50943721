"""The removal of all keys of a namespace that the primaries have, page by page.

Each search visits all primaries. A search in which the placement of the data changed, or which has found keys, is
followed by another search. So after the last search, no key is left.

Before a page removes keys, an earlier page has stored the mark of the deletion on their shards (`lua/remove_keys.lua`,
`lua/mark_deletion.lua`). So a process that stops in the middle of a page, and continues after the deletion, neither
removes keys of a new namespace nor marks its shards.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tickwheel.errors import TickwheelError
from tickwheel.operations.removal.placement import Placement, read_placement
from tickwheel.plan import Pause, Plan, Request, Round, send_request
from tickwheel.storage.keys import keys_pattern, shard_key, shard_of_key
from tickwheel.storage.scripts import Call, bind, load

_TOKEN = re.compile(r"([0-9]{1,2}):([0-9a-f]{16})?:([0-9a-f]{16})?:([0-9]{1,20}):([01])")
_PAGE = 1_000
# The maximum number of searches. If the placement is not clear, a pause counts as a search.
_SEARCHES_MAX = 40
_PAUSE_S = 0.5


class KeySearch:
    """A position in the searches for the keys of a namespace, except ``kept`` keys."""

    START = "0:::0:0"

    def __init__(self, namespace: str, kept: Collection[bytes], token: str = START) -> None:
        """Start at the position of the `token`. Raises ValueError if the token has another format."""
        if (match := _TOKEN.fullmatch(token)) is None:
            raise ValueError(token)
        self._namespace = namespace
        self._kept = kept
        self._searches = int(match[1])
        # The digest of the placement at the start of the search, and the primary that is searched now.
        self._digest, self._primary = match[2] or "", match[3] or ""
        self._cursor = match[4].encode()
        self._has_found = match[5] == "1"
        self.ended = False

    @property
    def token(self) -> str:
        return f"{self._searches}:{self._digest}:{self._primary}:{self._cursor.decode()}:{self._has_found:d}"

    def next(self, mark: str, check_mark: Callable[[], Plan[Any]]) -> Plan[int]:
        """Remove the next page of keys. Return the number of keys that the page has removed.

        If some shards do not have the ``mark`` of the deletion yet, mark them; the next call takes the same page.
        ``check_mark`` raises an error if the metadata shard has another mark by now.

        Raises TickwheelError if there is no end of the searches.
        """
        placement = yield from read_placement()
        if placement is None or placement.digest != self._digest:
            yield from self._begin(placement)
        # A cursor is valid only for the process that has returned it, so a changed placement has started a new search.
        if placement is None or self._primary not in placement.shards:
            return 0
        command = ("SCAN", self._cursor, "MATCH", keys_pattern(self._namespace), "COUNT", _PAGE)
        request = Request(placement.shards[self._primary], command=command)
        cursor, keys = (yield from send_request(request)).value
        # Keys in bytes, because another program may have written keys that are no text.
        by_shard: dict[int, list[Any]] = {}
        for key in keys:
            shard = shard_of_key(self._namespace, key)
            if shard is not None and key not in self._kept:
                by_shard.setdefault(shard, []).append(key)
        removed = 0
        unmarked: dict[int, bytes] = {}
        requests = [Request(shard, self._call("remove_keys", shard, [mark], keys)) for shard, keys in by_shard.items()]
        for shard, reply in zip(by_shard, (yield Round(requests)) if requests else [], strict=True):
            if reply.value[0] < 0:
                unmarked[shard] = reply.value[1]
            else:
                removed += reply.value[0]
        self._has_found = self._has_found or bool(by_shard)
        if unmarked:
            yield from check_mark()
            calls = {shard: self._call("mark_deletion", shard, [mark, time]) for shard, time in unmarked.items()}
            yield Round([Request(shard, call) for shard, call in calls.items()])
        else:
            self._cursor = cursor
            if cursor == b"0":
                yield from self._end_primary(placement)
        return removed

    def _call(self, script: str, shard: int, args: Sequence[bytes | str], keys: Sequence[Any] = ()) -> Call:
        return bind(load(script), {"clock": shard_key(self._namespace, shard, "clock")}, args, keys)

    def _begin(self, placement: Placement | None) -> Plan[None]:
        """Begin a search, or wait if the placement is not clear."""
        if self._searches == _SEARCHES_MAX:
            raise TickwheelError(
                f"the deletion of namespace {self._namespace!r} is not finished after {_SEARCHES_MAX} searches: servers"
                " restart or fail over, hash slots move, or programs write keys. Repeat the deletion when this has"
                " ended"
            )
        self._searches += 1
        self._cursor, self._has_found = b"0", False
        if placement is None:
            self._digest = self._primary = ""
            yield Pause(_PAUSE_S)
        else:
            self._digest, self._primary = placement.digest, max(placement.shards)

    def _end_primary(self, placement: Placement) -> Plan[None]:
        """Continue with the next primary. After the last primary, end the searches, or begin another search."""
        left = [primary for primary in placement.shards if primary < self._primary]
        if left:
            self._primary = max(left)
            return
        after = yield from read_placement()
        if after is not None and after.digest == self._digest and not self._has_found:
            self.ended = True
        else:
            yield from self._begin(after)
