"""All claims that a server has accepted, in order, from its append-only file.

A server accepts a script of an event process only with the last claimed fence. So the scripts of two claims run in the
order of the claims.
"""

import re
from pathlib import Path

from tests.fault.harness.run_evidence import Claim
from tests.fault.harness.system_under_test import NAMESPACE

_FENCE_BYTES = 8
_CLAIM = re.compile(
    rb"\$4\r\nHSET\r\n\$\d+\r\n%b:\{(\d+)\}:clock\r\n\$5\r\nfence\r\n\$16\r\n(.{16})\r\n"
    rb"\$8\r\nelection\r\n\$\d+\r\n([a-z]+)\r\n\$5\r\nowner\r\n\$\d+\r\n([^\r]*)\r\n" % NAMESPACE.encode(),
    re.DOTALL,
)


def claims(folder: Path) -> list[Claim]:
    """Return the claims in the append-only file of the server. Claims before its last rewrite are missing."""
    files = sorted((folder / "appendonlydir").glob("*.incr.aof"), key=_number)
    return [_claim(*match.groups()) for file in files for match in _CLAIM.finditer(file.read_bytes())]


def was_rewritten(folder: Path) -> bool:
    """Return whether the server has rewritten its file, like a replica after a full synchronization."""
    return any(_number(file) > 1 for file in (folder / "appendonlydir").glob("*.incr.aof"))


def _number(file: Path) -> int:
    """Return the number of the file: 2 for `appendonly.aof.2.incr.aof`."""
    return int(file.name.split(".")[-3])


def _claim(shard: bytes, fence: bytes, election: bytes, owner: bytes) -> Claim:
    epoch, number = int.from_bytes(fence[:_FENCE_BYTES]), int.from_bytes(fence[_FENCE_BYTES:])
    return Claim(int(shard), (epoch, number), election.decode(), owner.decode())
