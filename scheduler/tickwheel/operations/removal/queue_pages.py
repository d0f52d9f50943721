"""The rows of the key `queues`, page by page.

A namespace may have 65,535 rows, about 26 MB. One reply with all of them would take the event loop of a service, and
the server, for a long time. Between two pages, both serve other calls.
"""

from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Plan, Request, pairs_from_flat, send_request
from tickwheel.storage.keys import queues_key

Row = tuple[bytes, bytes]
# Rows that the server visits for a page. To read such a page takes the event loop about 0.3 ms.
PAGE_ROWS = 250


class QueuePages:
    """A position in the rows of a namespace. The pages are no snapshot.

    The pages have every row that exists all the time, and may have a row twice. Other rows may be missing.
    """

    def __init__(self, context: NamespaceContext, *, match: str = "*", must_exist: bool = False) -> None:
        """``match`` is the pattern of the names. With ``must_exist``, each page raises NamespaceGone
        (`NamespaceContext.check_shards`).
        """
        self._context = context
        self._match = match
        self._must_exist = must_exist
        self._cursor = b"0"
        self.ended = False

    def next(self) -> Plan[list[Row]]:
        """Return the names and the stored configurations of the next page, which may have no row."""
        context = self._context
        command = ("HSCAN", queues_key(context.namespace), self._cursor, "MATCH", self._match, "COUNT", PAGE_ROWS)
        if self._must_exist:
            reply = yield from context.read_metadata(command)
        else:
            reply = yield from send_request(Request(0, command=command))
        self._cursor, flat = reply.value
        self.ended = self._cursor == b"0"
        return list(pairs_from_flat(flat))
