"""How the embedded server is set up, beyond what Valkey does by itself, and why."""

from pathlib import Path
from typing import Literal

Appendfsync = Literal["always", "everysec"]
SOCKET_FOLDER = "run"
SOCKET_NAME = "valkey.sock"
# The bundled binary uses libc's allocator, and the strings that scripts make come and go by the thousand: kept in the
# thread's own cache they cost a tenth less server time in all (docs/decisions/0006). Other platforms ignore it.
ALLOCATOR = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=30000:glibc.malloc.top_pad=16777216"}


def settings(data_dir: Path, log_path: Path, appendfsync: Appendfsync) -> list[str]:
    """The arguments of the server program."""
    values = {
        # First, for the server goes there at once. The socket is named as seen from there, so that
        # a long path does not exceed what a socket's address can hold.
        "dir": str(data_dir),
        "unixsocket": f"{SOCKET_FOLDER}/{SOCKET_NAME}",
        "unixsocketperm": "700",
        "port": "0",
        "daemonize": "yes",
        # For people; nothing is decided by it.
        "pidfile": str(data_dir / "valkey.pid"),
        "logfile": str(log_path),
        "appendonly": "yes",
        "appendfsync": appendfsync,
        # A torn end was never acknowledged, under always.
        "aof-load-truncated": "yes",
        "save": "",
        # Any other policy would drop messages when memory is full.
        "maxmemory-policy": "noeviction",
        # Wakes 10 times a second when idle, more often with many clients.
        "hz": "10",
        "dynamic-hz": "yes",
        "busy-reply-threshold": "500",
        # Of a batch of 100 each entry is looked for in all before it where indexes are kept as lists: a fifteenth of a
        # life's server time, and a tenth of an exclusive one's (docs/decisions/0006).
        "zset-max-listpack-entries": "16",
        "hash-max-listpack-entries": "64",
    }
    return [text for name, value in values.items() for text in (f"--{name}", value)]
