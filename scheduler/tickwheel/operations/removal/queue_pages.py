"""The rows of the key `queues`, page by page.

A namespace may have 65,535 rows, about 26 MB. One reply with all of them would take the event loop of a service, and
the server, for a long time. Between two pages, both serve other calls.
"""

from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Plan, Request, Round, pairs_from_flat, send_request
from tickwheel.storage.keys import queues_key

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
        self.ended = False

    @property
    def has_missed_rows(self) -> bool:
        """Whether the pages, which have ended, lack rows. After a failover, the other server cannot continue the pages
        of the first one.
        """
        return self._expected is not None and self._rows < self._expected

    def next(self) -> Plan[list[Row]]:
        """Return the names and the stored configurations of the next page, which may have no row."""
        context = self._context
        command = ("HSCAN", queues_key(context.namespace), self._cursor, "MATCH", self._match, "COUNT", PAGE_ROWS)
        scan = Request(0, command=command)
        if self._must_exist:
            count = Request(0, command=("HLEN", queues_key(context.namespace)))
            reply, counted, shards = yield Round([scan, count, context.shards_request()])
            context.check_shards(shards)
            # Rows that exist all the time are in the first and in the last count.
            self._expected = counted.value if self._expected is None else min(self._expected, counted.value)
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
