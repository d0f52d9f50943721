"""A Python program that prints its gRPC address once it serves, as `tickwheel serve` does."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from services.process import Process

# The first arguments of a program that runs the service on a free port, and never drives. Append the URL of the Redis
# server.
SERVE: Final = ("-m", "tickwheel", "serve", "--listen", "127.0.0.1:0", "--drive", "never", "--url")


class ServingProgram(Process):
    """The program that Python runs with ``arguments``. It is ready when it has printed its address."""

    def __init__(self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, *arguments]
        super().__init__(
            "service", command, folder, lambda: bool(self._addresses()), environment=environment, cwd=Path.cwd()
        )

    @property
    def url(self) -> str:
        """The address as the URL of a client."""
        return self._addresses()[0]

    @property
    def target(self) -> str:
        """The address as the target of a gRPC channel."""
        return self.url.rpartition("/")[2]

    def _addresses(self) -> list[str]:
        return re.findall(r'(?:^|"text": "|INFO tickwheel\.service: )serving (grpc[^",\s]*)', self.log, re.MULTILINE)
