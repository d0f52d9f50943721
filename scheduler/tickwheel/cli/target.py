"""Where a command works, as its options and the environment say, and the client that is opened there."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from tickwheel import Tickwheel
from tickwheel.cli.parameter_types import parse_duration
from tickwheel.errors import InvalidArgument
from tickwheel.rpc.url import is_grpc_url

# A person waits; a program that retries for longer uses the client.
TIMEOUT = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Target:
    """Server, namespace, and how to answer. None is 'not said'."""

    url: str | None = None
    data_dir: Path | None = None
    namespace: str | None = None
    timeout: timedelta | None = None
    json: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """What TICKWHEEL_URL, TICKWHEEL_DATA_DIR, TICKWHEEL_NAMESPACE and TICKWHEEL_TIMEOUT say."""
        values = {name: environment.get(f"TICKWHEEL_{name}") or None for name in ("URL", "NAMESPACE")}
        data_dir, timeout = environment.get("TICKWHEEL_DATA_DIR"), environment.get("TICKWHEEL_TIMEOUT")
        return cls(
            values["URL"],
            Path(data_dir) if data_dir else None,
            values["NAMESPACE"],
            parse_duration(timeout) if timeout else None,
        )

    def environment(self) -> dict[str, str]:
        """What `of_environment` reads as the same place. Not as arguments, which every user of the host can read."""
        values = {
            "URL": self.url,
            "DATA_DIR": None if self.data_dir is None else str(self.data_dir),
            "NAMESPACE": self.namespace,
            "TIMEOUT": None if self.timeout is None else f"{round(self.timeout.total_seconds() * 1_000)}ms",
        }
        return {f"TICKWHEEL_{name}": value or "" for name, value in values.items()}

    def merged_with(self, other: "Target") -> "Target":
        """What is said here, and of ``other`` only what is not said here. A server is said by a URL or a directory."""
        server = self if self.url is not None or self.data_dir is not None else other
        return replace(
            server,
            namespace=self.namespace if self.namespace is not None else other.namespace,
            timeout=self.timeout if self.timeout is not None else other.timeout,
            json=self.json or other.json,
        )

    def require_redis(self, command: str) -> Self:
        """The same, for a command that works on the server that keeps messages. Raises InvalidArgument for another."""
        if self.url is not None and is_grpc_url(self.url):
            raise InvalidArgument(
                f"{command} works on the server that keeps messages itself: give the --url of that, not grpc://"
            )
        return self

    def open(
        self,
        *,
        create: bool = False,
        drive: bool = False,
        durability: str | None = None,
        **namespace: Any,
    ) -> Tickwheel:
        """A client of a namespace that is there, or with ``makes`` of one that is made if need be.

        A command that needs nothing new must not make one: its shards and history would be fixed. ``drives``: with an
        embedded server its event process runs meanwhile, so that timers fire.

        ``namespace`` is what `Tickwheel` is told of a new one, or is to be checked of one that is there.
        """
        return Tickwheel(
            self.url,
            namespace=self.namespace or "tw",
            data_dir=self.data_dir,
            durability=durability,
            existing=not create,
            drive=None if drive else False,
            timeout=TIMEOUT if self.timeout is None else self.timeout,
            **namespace,
        )
