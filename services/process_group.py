"""Servers that form one service. One call starts or stops all of them; each can also be stopped and broken alone."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from services.process import Process


class ProcessGroup:
    """The servers ``members``. As a context manager it starts them, and stops them at the end."""

    def __init__(self, members: Sequence[Process]) -> None:
        self.members = members

    def start(self) -> None:
        """Start all servers, and wait until they are ready. If they are not ready in time, kill all of them."""
        try:
            for member in self.members:
                member.launch()
            self.wait_until_all_ready()
            self._join()
        except BaseException:
            for member in self.members:
                member.kill()
            raise

    def wait_until_all_ready(self) -> None:
        """Wait until each server is ready. If a server does not get ready, kill it and raise ServiceError."""
        for member in self.members:
            member.wait_until_ready()

    def stop(self) -> None:
        """Stop all servers."""
        for member in self.members:
            member.stop()

    def _join(self) -> None:
        """Connect the running servers with each other, if their settings do not do so."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
