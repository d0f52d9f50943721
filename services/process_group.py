"""Servers that are one service together: started as one, ended as one, each to be broken by itself."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from services.process import Process


class ProcessGroup:
    """All of ``members``. As a context manager it is started at the beginning of the block and stopped at its end."""

    def __init__(self, members: Sequence[Process]) -> None:
        self.members = members

    def start(self) -> None:
        """Run all of them, until they are what they are to be together; where they are not in time, none is left."""
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
        """Until each serves. One that does not in time is killed, and the error shows the end of its log."""
        for member in self.members:
            member.wait_until_ready()

    def stop(self) -> None:
        """End all of them."""
        for member in self.members:
            member.stop()

    def _join(self) -> None:
        """Tell the members, which serve, about each other, where they do not know from their settings."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
