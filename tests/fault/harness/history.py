"""What a process writes down: each call before it is made and after it was answered, so that a killed process leaves
its open calls as what they are, unknown.

A line is JSON: `{n, op, queue, ids, at, args}` before, `{n, outcome, value, at}` after. Times are by CLOCK_BOOTTIME,
which all processes of a host share and nobody steps. Append-only; a name is never used again.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tickwheel import IdConflict, InvalidTransition, LeaseLost, MessageNotFound, NotDurable, Unavailable
from tickwheel.errors import TickwheelError

OK, FAIL, UNKNOWN = "ok", "fail", "unknown"
# Refused by what the shard holds, before anything was written.
_REFUSED = (LeaseLost, MessageNotFound, InvalidTransition, IdConflict)


def now() -> float:
    """Seconds that only pass, the same for all processes of the host."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Call:
    """One call of one process. ``returned`` is None where the process was killed before it was answered."""

    process: str
    op: str
    queue: str
    ids: list[str]
    invoked: float
    args: Any = None
    returned: float | None = None
    outcome: str = UNKNOWN
    value: Any = None


@dataclass(slots=True)
class Answer:
    """What `History.call` writes down at the end; ``value`` is JSON."""

    outcome: str = OK
    value: Any = None
    error: TickwheelError | None = field(default=None, repr=False)


class CallLog:
    """The file of one process."""

    def __init__(self, folder: Path, process: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._file = os.open(folder / f"{process}.history", flags, 0o600)
        self._numbers = count()

    @contextmanager
    def call(self, op: str, queue: str, ids: list[str], args: Any = None) -> Iterator[Answer]:
        """Around a call of the product: its errors end the block, and are in the answer."""
        number, answer = next(self._numbers), Answer()
        self._write({"n": number, "op": op, "queue": queue, "ids": ids, "at": now(), "args": args})
        try:
            yield answer
        except TickwheelError as error:
            answer.error, answer.outcome = error, outcome_of(error)
            answer.value = f"{type(error).__name__}: {error}"
        self._write({"n": number, "at": now(), "outcome": answer.outcome, "value": answer.value})

    def note(self, op: str, queue: str, ids: list[str], value: Any) -> None:
        """Something that was seen, and is no call."""
        with self.call(op, queue, ids) as answer:
            answer.value = value

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def outcome_of(error: TickwheelError) -> str:
    """Failed only where the product says that nothing was done."""
    if isinstance(error, NotDurable) or (isinstance(error, Unavailable) and error.may_have_happened):
        return UNKNOWN
    return FAIL if isinstance(error, (*_REFUSED, Unavailable)) else UNKNOWN


def read(folder: Path) -> list[Call]:
    """All calls of all processes of a run."""
    return [call for path in sorted(folder.glob("*.history")) for call in _read(path)]


def _read(path: Path) -> list[Call]:
    calls: dict[int, Call] = {}
    for line in path.read_bytes().splitlines(keepends=True):
        # Only the last line of a process killed while it wrote.
        if not line.endswith(b"\n"):
            break
        told = json.loads(line)
        if "op" in told:
            calls[told["n"]] = Call(path.stem, told["op"], told["queue"], told["ids"], told["at"], told["args"])
        else:
            call = calls[told["n"]]
            call.returned, call.outcome, call.value = told["at"], told["outcome"], told["value"]
    return list(calls.values())
