"""All claims that a server has obeyed, exactly: they are in its append-only file, in its order.

A script of an event process is obeyed under the fence that was claimed last: so this is the order of all they did.
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
    """Those in the file of the server whose data is there; without what came before its last rewriting."""
    files = sorted((folder / "appendonlydir").glob("*.incr.aof"), key=_number)
    return [_claim(*found.groups()) for file in files for found in _CLAIM.finditer(file.read_bytes())]


def was_rewritten(folder: Path) -> bool:
    """Whether that server has begun its file anew, as a replica does that copies all of its primary."""
    return any(_number(file) > 1 for file in (folder / "appendonlydir").glob("*.incr.aof"))


def _number(file: Path) -> int:
    """Of the file, as in `appendonly.aof.2.incr.aof`."""
    return int(file.name.split(".")[-3])


def _claim(shard: bytes, fence: bytes, election: bytes, owner: bytes) -> Claim:
    epoch, number = int.from_bytes(fence[:_FENCE_BYTES]), int.from_bytes(fence[_FENCE_BYTES:])
    return Claim(int(shard), (epoch, number), election.decode(), owner.decode())
