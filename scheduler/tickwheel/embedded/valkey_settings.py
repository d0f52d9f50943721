"""The settings of the embedded server that differ from Valkey's defaults, with the reasons."""

from pathlib import Path
from typing import Literal

Appendfsync = Literal["always", "everysec"]
SOCKET_FOLDER = "run"
SOCKET_NAME = "valkey.sock"
# The bundled binary uses libc's allocator, and scripts allocate and free strings by the thousand. With a large cache of
# the allocator for each thread, the server needs a tenth less time in all (docs/decisions/0006). Other platforms ignore
# the variable.
ALLOCATOR = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=30000:glibc.malloc.top_pad=16777216"}


def settings(data_dir: Path, log_path: Path, appendfsync: Appendfsync) -> list[str]:
    """Return the arguments of the server program."""
    values = {
        # First, because the server changes to this directory immediately. The path of the socket is relative to it, so
        # a long path of the directory does not exceed the maximum length of a socket address.
        "dir": str(data_dir),
        "unixsocket": f"{SOCKET_FOLDER}/{SOCKET_NAME}",
        "unixsocketperm": "700",
        "port": "0",
        "daemonize": "yes",
        # For operators only; no program reads it.
        "pidfile": str(data_dir / "valkey.pid"),
        "logfile": str(log_path),
        "appendonly": "yes",
        "appendfsync": appendfsync,
        # With `always`, an incomplete last entry was never acknowledged.
        "aof-load-truncated": "yes",
        "save": "",
        # Other policies would delete messages when the memory is full.
        "maxmemory-policy": "noeviction",
        # The server wakes up 10 times a second when idle, and more often with many clients.
        "hz": "10",
        "dynamic-hz": "yes",
        "busy-reply-threshold": "500",
        # Indexes that are stored as lists are searched from the start: each entry of a batch of 100 is compared with
        # all entries before it. Shorter lists save a fifteenth of the server time of a message's life, and a tenth on
        # exclusive queues (docs/decisions/0006).
        "zset-max-listpack-entries": "16",
        "hash-max-listpack-entries": "64",
    }
    return [text for name, value in values.items() for text in (f"--{name}", value)]
