"""Deletes a namespace with all its data, step by step. A deletion that was cut off is repeated from its start.

The first step hides the number of shards, which every client compares when it reads a configuration. Then the shards
forget the versions of the configurations, so every call of a client reads a configuration, and learns that the
namespace is gone. Then all primaries are searched for keys of the namespace (`KeySearch`). The stored number of
shards may be wrong, so all shards count. The keys of the metadata are the last, in the same step as the end of the
searches.

The first step also removes up to 20,000 versions, in the same round trip. So if the deletion is cut off after the step,
no client that was open before adds messages, unless the namespace has more versions. The servers of a cluster may do
their parts of the step in any order, and a client may then store a version again: later steps remove all versions.

The first step also stores a random mark, which each token contains. So a token continues only the deletion that made
it: not the namespace that somebody has created after that deletion, and no namespace that is in use. The scripts that
remove keys compare the mark, too: a process may stop for a long time between its comparison and its removal.
"""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from tickwheel import limits
from tickwheel.errors import DataLoss, Forbidden, InvalidArgument, NamespaceInUse
from tickwheel.model import validation
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.namespace import FORMAT, is_other_format, namespace_not_found_error, other_format_error
from tickwheel.operations.page_token import page_token_error
from tickwheel.operations.removal.election_members import has_election_members
from tickwheel.operations.removal.key_search import KeySearch
from tickwheel.operations.removal.placement import read_placement
from tickwheel.operations.removal.queue_pages import QueuePages
from tickwheel.operations.shard_status import END_ALL, find_followers
from tickwheel.plan import ListPrimaries, Plan, Request, Round, send_request
from tickwheel.storage.keys import metadata_keys, queue_key, shard_key, shard_prefix
from tickwheel.storage.scripts import bind, load
from tickwheel.storage.stored_text import decode_text

# Earlier versions searched each primary once, and left keys that had moved. Their tokens have other fields, so neither
# they nor this version continue a deletion of the other.
_TOKEN = re.compile(r"(versions|search)/([0-9]{1,5})/([0-9a-f]{16})/([0-9a-f:]{1,64})")
_MARK_BYTES = 8
_COUNT = re.compile(rb"[0-9]{1,5}")
_VERSIONS, _SEARCH = "versions", "search"
# The maximum number of versions that the first step removes.
_KEYS = 20_000


class NamespaceDeletion:
    """A position in the deletion of a namespace. The context need not be open."""

    def __init__(self, context: NamespaceContext, token: str = "", *, is_checked: bool = True) -> None:
        """Start a deletion, or continue an earlier deletion from its `token`. Raises InvalidArgument.

        ``is_checked`` refuses to delete a namespace that is driven, or whose events are not relayed.
        """
        self._context = context
        self._is_checked = is_checked
        self._phase, self._shard, self._mark = "", 0, ""
        self._metadata = metadata_keys(context.namespace)
        self._search = self._make_search()
        self.ended = False
        if token:
            self._continue(token)

    @property
    def token(self) -> str:
        """The position of the deletion; empty at the end."""
        return "" if self.ended else f"{self._phase}/{self._shard}/{self._mark}/{self._search.token}"

    def next(self) -> Plan[int]:
        """Take the next step. Return the number of keys that the step has removed."""
        if not self._phase:
            hidden = yield from self._begin()
            self._phase, self._shard = _VERSIONS, self._context.shards - 1
            return hidden
        yield from self._read()
        if self._phase == _SEARCH:
            removed = yield from self._search.next(self._mark, self._read)
            if self._search.ended:
                removed += yield from self._remove_metadata()
                self.ended = True
            return removed
        if self._shard >= self._context.shards:
            raise page_token_error(self.token)
        return (yield from self._remove_versions())

    def _continue(self, token: str) -> None:
        """Continue the deletion from the position of the token."""
        if (match := _TOKEN.fullmatch(token)) is None:
            raise page_token_error(token)
        self._phase, self._shard, self._mark = match[1], int(match[2]), match[3]
        try:
            self._search = self._make_search(match[4])
        except ValueError:
            raise page_token_error(token) from None

    def _make_search(self, token: str = KeySearch.START) -> KeySearch:
        return KeySearch(self._context.namespace, {key.encode() for key in self._metadata.values()}, token)

    def _begin(self) -> Plan[int]:
        """Check the namespace, and hide the number of its shards from its clients.

        Return the number of removed versions. A format that is damaged or missing is no obstacle: a deletion is also
        the remedy for damage.
        """
        mark = os.urandom(_MARK_BYTES).hex()
        fields = yield from self._call_on_metadata("begin_deletion", mark, FORMAT, 0 if self._is_checked else 1)
        format_, shards, deleting, history, stored_mark = fields
        self._check_format(format_)
        if shards is None and history is None and self._is_checked:
            raise namespace_not_found_error(self._context)
        self._mark = stored_mark.decode()
        self._adopt_shards(shards, deleting)
        if self._is_checked:
            # A deletion that was cut off has hidden the namespace already. No relay opens such a namespace, so nobody
            # would publish events that were added between the check of that deletion and its first step.
            is_hidden = shards == b"0" and self._mark != mark
            try:
                yield from self._check_unused(relays=history == b"relay" and not is_hidden)
            except (Forbidden, NamespaceInUse):
                yield from self._call_on_metadata("withdraw_deletion", self._mark)
                raise
        hide = Request(0, bind(load("hide_namespace"), self._metadata, [self._mark, self._context.shards]))
        names: list[str] = []
        most, pages = _KEYS // self._context.shards, QueuePages(self._context)
        while len(names) < most and not pages.ended:
            names += yield from self._read_names(pages)
        names = names[:most]
        # If the namespace is another one by now, its clients store the versions again.
        hidden, *removed = yield Round([hide, *self._unlink_versions(range(self._context.shards), names)])
        if not hidden.value:
            raise self._other_deletion_error()
        return sum(reply.value for reply in removed)

    def _read(self) -> Plan[None]:
        """Read the namespace's own fields after the first step. Raises InvalidArgument if they have another mark."""
        command = ("HMGET", self._metadata["namespace"], "format", "shards", "deleting", "deletion")
        format_, shards, deleting, mark = (yield from send_request(Request(0, command=command))).value
        self._check_format(format_)
        if shards is None:
            raise namespace_not_found_error(self._context)
        if shards != b"0" or mark != self._mark.encode():
            raise self._other_deletion_error()
        self._adopt_shards(shards, deleting)

    def _check_format(self, stored: bytes | None) -> None:
        if is_other_format(stored):
            raise other_format_error(self._context, stored)

    def _adopt_shards(self, shards: bytes | None, deleting: bytes | None) -> None:
        """Take the number of shards from the fields. A wrong number is harmless: the search finds all keys."""
        count = deleting if shards == b"0" else shards
        if count is not None and _COUNT.fullmatch(count) and 1 <= int(count) <= limits.SHARDS_MAX:
            self._context.shards = int(count)

    def _read_names(self, pages: QueuePages) -> Plan[list[str]]:
        """Return the names of the next page. Names that no queue can have, because of damage, are left out."""
        names = []
        for stored_name, _ in (yield from pages.next()):
            with suppress(DataLoss, InvalidArgument):
                names.append(validation.plain_name("the name of a queue", decode_text("a name", stored_name)))
        return names

    def _unlink_versions(self, shards: Iterable[int], names: Sequence[str]) -> list[Request]:
        """Return the requests that remove the versions of these queues on these shards."""
        namespace = self._context.namespace
        keys = {shard: [queue_key(namespace, shard, name, "config") for name in names] for shard in shards}
        return [Request(shard, command=("UNLINK", *keys[shard])) for shard in keys if names]

    def _check_unused(self, *, relays: bool) -> Plan[None]:
        """Check that no process drives the namespace, and with ``relays``, that the relay has published all events."""
        context = self._context
        try:
            followers = yield from find_followers(context)
            has_members = not followers and (yield from has_election_members(context))
            # Later steps find the keys with SCAN, and remove them. If a command was refused then, only a part would be
            # removed. No key has this name; users for clients and the service may not access it.
            yield from read_placement()
            for shard in (yield ListPrimaries()).values():
                yield from send_request(Request(shard, command=("SCAN", "0", "COUNT", 1)))
                no_key = f"{shard_prefix(context.namespace, shard)}none"
                yield from send_request(Request(shard, command=("UNLINK", no_key)))
        except Forbidden as error:
            raise Forbidden(
                f"{error}; the deletion of a namespace needs CLIENT LIST, SCAN, on a cluster CLUSTER NODES, and access"
                " to every key of the namespace: run `tickwheel namespace delete` as an administrator of the server,"
                " with a URL of Redis, not of the service"
            ) from error
        if followers:
            raise NamespaceInUse(f"namespace {context.namespace!r} is being driven: {followers[0].explanation}")
        if has_members:
            raise NamespaceInUse(
                f"processes take part in the election of namespace {context.namespace!r}, and may drive it soon."
                f" {END_ALL}: `tickwheel doctor` names them"
            )
        if relays:
            lengths = yield Round(
                [Request(n, command=("XLEN", shard_key(context.namespace, n, "events"))) for n in range(context.shards)]
            )
            left = sum(reply.value for reply in lengths)
            if left:
                raise NamespaceInUse(
                    f"namespace {context.namespace!r} has {left:,} entries of events that are not relayed to Kafka: run"
                    " `tickwheel events` with the relay until the outbox is empty, and end it again"
                )

    def _remove_versions(self) -> Plan[int]:
        removed = 0
        pages = QueuePages(self._context)
        while not pages.ended:
            names = yield from self._read_names(pages)
            if names:
                [reply] = yield Round(self._unlink_versions([self._shard], names))
                removed += reply.value
        self._shard -= 1
        if self._shard < 0:
            self._phase, self._shard = _SEARCH, 0
        return removed

    def _remove_metadata(self) -> Plan[int]:
        removed: int = yield from self._call_on_metadata("remove_metadata", self._mark)
        if removed < 0:
            raise self._other_deletion_error()
        return removed

    def _call_on_metadata(self, script: str, *args: int | str) -> Plan[Any]:
        return (yield from send_request(Request(0, bind(load(script), self._metadata, args)))).value

    def _other_deletion_error(self) -> InvalidArgument:
        if not self._phase:
            return InvalidArgument(
                f"another program has begun or ended a deletion of namespace {self._context.namespace!r} during this"
                " call: begin a new deletion if the namespace still exists"
            )
        return InvalidArgument(
            f"page_token belongs to another deletion than the present one of namespace {self._context.namespace!r},"
            " if there is one: begin a new deletion without a page_token"
        )


def delete_namespace(context: NamespaceContext) -> Plan[None]:
    """Delete a namespace without checks. For programs that created the namespace: demo, bench, tests."""
    deletion = NamespaceDeletion(context, is_checked=False)
    while not deletion.ended:
        yield from deletion.next()
