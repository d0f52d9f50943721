"""The call log of a process has a line before and a line after each call.

If a process was killed during a call, the second line is missing, and the result of the call is unknown.

The lines are JSON: `{n, op, queue, ids, at, args}` before the call, and `{n, outcome, value, at}` after it. Times are
of CLOCK_BOOTTIME, which is the same for all processes of a host and is never stepped. Each process writes its own file.
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
# Rejected because of the state of the shard, before any write.
_REFUSED = (LeaseLost, MessageNotFound, InvalidTransition, IdConflict)


def now() -> float:
    """Return the seconds of a clock that is never stepped, the same for all processes of the host."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Call:
    """One call of one process. ``returned`` is None if the process was killed before the answer."""

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
    """The answer that `CallLog.call` records. ``value`` is JSON."""

    outcome: str = OK
    value: Any = None
    error: TickwheelError | None = field(default=None, repr=False)


class CallLog:
    """The call log of one process."""

    def __init__(self, folder: Path, process: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._file = os.open(folder / f"{process}.calls", flags, 0o600)
        self._numbers = count()

    @contextmanager
    def call(self, op: str, queue: str, ids: list[str], args: Any = None) -> Iterator[Answer]:
        """Record a call of the product, made in the block. Its errors end the block, and are recorded in the answer."""
        number, answer = next(self._numbers), Answer()
        self._write({"n": number, "op": op, "queue": queue, "ids": ids, "at": now(), "args": args})
        try:
            yield answer
        except TickwheelError as error:
            answer.error, answer.outcome = error, outcome_of(error)
            answer.value = f"{type(error).__name__}: {error}"
        self._write({"n": number, "at": now(), "outcome": answer.outcome, "value": answer.value})

    def note(self, op: str, queue: str, ids: list[str], value: Any) -> None:
        """Record an observation that is not a call."""
        with self.call(op, queue, ids) as answer:
            answer.value = value

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def outcome_of(error: TickwheelError) -> str:
    """Return FAIL only if the error proves that nothing was executed, else UNKNOWN."""
    if isinstance(error, NotDurable) or (isinstance(error, Unavailable) and error.may_have_happened):
        return UNKNOWN
    return FAIL if isinstance(error, (*_REFUSED, Unavailable)) else UNKNOWN


def read(folder: Path) -> list[Call]:
    """Return the calls of all processes of a run."""
    return [call for path in sorted(folder.glob("*.calls")) for call in _read(path)]


def _read(path: Path) -> list[Call]:
    calls: dict[int, Call] = {}
    for line in path.read_bytes().splitlines(keepends=True):
        # The last line of a process that was killed during the write.
        if not line.endswith(b"\n"):
            break
        line_fields = json.loads(line)
        if "op" in line_fields:
            calls[line_fields["n"]] = Call(
                path.stem,
                line_fields["op"],
                line_fields["queue"],
                line_fields["ids"],
                line_fields["at"],
                line_fields["args"],
            )
        else:
            call = calls[line_fields["n"]]
            call.returned, call.outcome, call.value = line_fields["at"], line_fields["outcome"], line_fields["value"]
    return list(calls.values())
