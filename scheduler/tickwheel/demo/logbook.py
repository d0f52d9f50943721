"""The logbook of a worker: a JSON line for each landing. The checks compare logbooks with the event stream."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from tickwheel.runtime.foreign_data import decode_json


@dataclass(frozen=True, slots=True)
class Landing:
    """One flight. Its times are in ns, by the monotonic clock, which is the same for all processes of a machine.

    The flight lasts from the delivery of the message until just before the worker completes the message. ``completed``
    is True if the scheduler accepted the completion.
    """

    worker: str
    flight: str
    aircraft: str | None
    attempt: int
    off_ns: int
    on_ns: int
    completed: bool


class Logbook:
    """The logbook file of one worker."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, landing: Landing) -> None:
        """Append a landing in a single unbuffered write, so that no landing is lost if the worker is killed."""
        os.write(self._file, json.dumps(asdict(landing)).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> list[Landing]:
    """Read all landings of a worker; none if the file does not exist."""
    if not path.exists():
        return []
    return [Landing(**decode_json(line)) for line in path.read_bytes().splitlines()]
