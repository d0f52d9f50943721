"""The rows of the key `queues`, page by page.

A namespace may have 65,535 rows, about 26 MB. One reply with all of them would take the event loop of a service, and
the server, for a long time. Between two pages, both serve other calls.
"""

from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Plan, Reply, Request, Round, pairs_from_flat, send_request
from tickwheel.storage.keys import namespace_key, queues_key

Row = tuple[bytes, bytes]
# Rows that the server visits for a page. To read such a page takes the event loop about 0.3 ms.
PAGE_ROWS = 250


class QueuePages:
    """A position in the rows of a namespace. The pages are no snapshot.

    The pages have every row that exists all the time, and may have a row twice. Other rows may be missing.
    """

    def __init__(self, context: NamespaceContext, *, match: str = "*", must_exist: bool = False) -> None:
        """``match`` is the pattern of the names.

        ``must_exist`` is for lists of all rows: each page raises NamespaceGone (`NamespaceContext.check_shards`), and
        `has_missed_rows` is valid.
        """
        self._context = context
        self._match = match
        self._must_exist = must_exist
        self._cursor = b"0"
        self._rows = 0
        self._expected: int | None = None
        # The counter of placeholders at the last page, and the sum of its changes.
        self._placeholders: int | None = None
        self._replaced = 0
        self.ended = False

    @property
    def has_missed_rows(self) -> bool:
        """Whether the pages, which have ended, lack rows. After a failover, the other server cannot continue the pages
        of the first one.

        A deletion replaces a row by a placeholder, and a new queue may replace a placeholder. The pages may then have
        neither, so such a row is not expected. When all numbers were given, a deletion and a creation between two pages
        cancel out in the counter. So the value may then be True without a reason.
        """
        return self._expected is not None and self._rows + self._replaced < self._expected

    def next(self) -> Plan[list[Row]]:
        """Return the names and the stored configurations of the next page, which may have no row."""
        context = self._context
        command = ("HSCAN", queues_key(context.namespace), self._cursor, "MATCH", self._match, "COUNT", PAGE_ROWS)
        scan = Request(0, command=command)
        if self._must_exist:
            reply = yield from self._scan_and_count(scan)
        else:
            reply = yield from send_request(scan)
        self._cursor, flat = reply.value
        if not isinstance(self._cursor, bytes) or not self._cursor.isdigit():
            # With such answers of a broken server, the pages would never end.
            raise TypeError(f"HSCAN returned the cursor {self._cursor!r:.100}")
        self.ended = self._cursor == b"0"
        rows = list(pairs_from_flat(flat))
        self._rows += len(rows)
        return rows

    def _scan_and_count(self, scan: Request) -> Plan[Reply]:
        """Return the answer to ``scan``. The counts before the first page and after each page include all changes."""
        context = self._context
        commands = [
            ("HLEN", queues_key(context.namespace)),
            ("HGET", namespace_key(context.namespace), "deleted_queues"),
        ]
        before = [] if self._expected is not None else [Request(0, command=command) for command in commands]
        after = [Request(0, command=command) for command in commands]
        replies: list[Reply] = yield Round([*before, scan, context.shards_request(), *after])
        *counts, reply, shards, rows, placeholders = replies
        context.check_shards(shards)
        if counts:
            self._count(*counts)
        self._count(rows, placeholders)
        return reply

    def _count(self, rows: Reply, placeholders: Reply) -> None:
        # Rows that exist all the time are in the first and in the last count.
        self._expected = rows.value if self._expected is None else min(self._expected, rows.value)
        stored = placeholders.value
        # The scripts, too, take a value that is no number as 0.
        count = int(stored) if isinstance(stored, bytes) and len(stored) < 20 and stored.isdigit() else 0
        if self._placeholders is not None:
            self._replaced += abs(count - self._placeholders)
        self._placeholders = count
