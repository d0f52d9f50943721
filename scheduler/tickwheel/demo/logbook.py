"""What a worker writes down by itself, a JSON line for each landing: the verdict compares it with the event stream."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Landing:
    """One flight by its worker's own clock, which all workers of a machine share (monotonic, in ns).

    From the moment the worker had the message to the moment before it said that it was done. ``completed`` is whether
    the scheduler took that.
    """

    worker: str
    flight: str
    aircraft: str | None
    attempt: int
    off_ns: int
    on_ns: int
    completed: bool


class Logbook:
    """A file that one worker writes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, landing: Landing) -> None:
        """At once and in one piece: what is written is there however the worker ends."""
        os.write(self._file, json.dumps(asdict(landing)).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


def read(path: Path) -> list[Landing]:
    """All landings of a worker; none where it never wrote."""
    if not path.exists():
        return []
    return [Landing(**json.loads(line)) for line in path.read_bytes().splitlines()]
