"""The table of roles in docs/security.md, and what it permits to the holder of some grants."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

_PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"
_BEGIN: Final = "<!-- tests/security/test_permissions.py compares this table with the service -->\n"
_END: Final = "<!-- end of the table -->\n"
_CELLS: Final = {"yes", "no", "without payload", "its queues", "all queues"}


class Grant(NamedTuple):
    """A grant of a token, as a token file contains it."""

    roles: Sequence[str]
    queues: Sequence[str]
    namespaces: Sequence[str]


class Row(NamedTuple):
    """What an RPC concerns, and for each role the cell of the table."""

    concerns: str
    cells: dict[str, str]

    def permit(self, grants: Sequence[Grant], namespace: str, queue: str) -> bool:
        """Return whether one of the grants permits the RPC."""
        return any(self._permitting(grants, namespace, queue))

    def permit_payload(self, grants: Sequence[Grant], namespace: str, queue: str) -> bool:
        """Return whether one of the grants permits the RPC with the payload."""
        return any(cell != "without payload" for cell in self._permitting(grants, namespace, queue))

    def _permitting(self, grants: Sequence[Grant], namespace: str, queue: str) -> Iterator[str]:
        for grant in grants:
            on_queue = self.concerns == "the namespace" or _match(queue, grant.queues)
            if on_queue and _match(namespace, grant.namespaces):
                for cell in (self.cells[role] for role in grant.roles):
                    if cell != "no" and (cell != "all queues" or "*" in grant.queues):
                        yield cell


def _match(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def read_table() -> dict[str, Row]:
    """Return the rows of the table by the RPC. The key ends with the words behind the RPC's name, if there are any."""
    head, _, *lines = _PAGE.read_text().partition(_BEGIN)[2].partition(_END)[0].splitlines()
    roles = re.findall("`([a-z]+)`", head)
    table: dict[str, Row] = {}
    for line in lines:
        names, concerns, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert concerns in ("a queue", "the namespace"), line
        assert len(cells) == len(roles), line
        assert set(cells) <= _CELLS, line
        for name in names.split(", "):
            key = name.replace("`", "")
            assert key not in table, f"the table has two rows for {key}"
            table[key] = Row(concerns, dict(zip(roles, cells, strict=True)))
    return table
