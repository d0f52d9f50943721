"""Recorded loads from CSV files: `queue,arrival,run seconds`, one line for each message, checked line by line.

``arrival`` is a number of seconds, from midnight or any other moment, or a time like 2026-05-17T18:00:00Z. All lines of
a file must use the same form.
"""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources.abc import Traversable

from tickwheel.errors import InvalidArgument
from tickwheel.load.scenario.arrival_rate import DAY_S
from tickwheel.load.scenario.distributions import empirical
from tickwheel.load.scenario.scenario import QueueLoad, Row, Scenario, default_workers
from tickwheel.model.validation import plain_name, preview
from tickwheel.runtime.text_file import read_text

COLUMNS = ("queue", "arrival", "run seconds")
_RUN_MAX_S = 86_400.0
_LENGTH_MAX_S = 7 * DAY_S


def read_scenario(file: Traversable) -> Scenario:
    """Read a recording without a scenario file: queues with default settings, and one worker."""
    rows = read(file)
    queues = complete_queues([], rows)
    return Scenario(
        name=file.name.rpartition(".")[0] or file.name,
        queues=queues,
        workers=default_workers(queues),
        start_s=rows[0].arrival_s,
        length_s=length_s(rows),
        recording=rows,
    )


def read(file: Traversable) -> list[Row]:
    """Read the lines of a file, ordered by arrival. Raises InvalidArgument, which names file and line."""
    text = read_text(file, "utf-8-sig")
    rows, stamped = [], set()
    for line, row in _lines(text, file.name):
        try:
            rows.append(_row(row))
        except InvalidArgument as error:
            raise InvalidArgument(f"{file.name} line {line}: {error}") from error
        stamped.add(not _is_number(row[1]))
        if len(stamped) > 1:
            raise InvalidArgument(f"{file.name} line {line}: arrival must be written as on the lines before")
    if not rows:
        raise InvalidArgument(f"{file.name} has no messages")
    rows.sort(key=lambda row: row.arrival_s)
    # Only whole days are subtracted, so that the hour of the day stays the same.
    first = rows[0].arrival_s // DAY_S * DAY_S
    if rows[-1].arrival_s - rows[0].arrival_s > _LENGTH_MAX_S:
        raise InvalidArgument(f"{file.name} covers more than 7 days, from its first arrival to its last")
    return [Row(row.queue, row.arrival_s - first, row.run_s) for row in rows]


def length_s(rows: Sequence[Row]) -> float:
    """Return the time from the first arrival until just after the last."""
    return rows[-1].arrival_s - rows[0].arrival_s + 0.001


def complete_queues(queues: Iterable[QueueLoad], rows: Iterable[Row]) -> list[QueueLoad]:
    """Return the queues of the recording, with the recorded run times.

    The other settings are those of ``queues``, or the defaults if ``queues`` does not contain the queue.
    """
    runs: dict[str, list[float]] = {}
    for row in rows:
        runs.setdefault(row.queue, []).append(row.run_s)
    by_name = {queue.name: queue for queue in queues}
    for name in by_name:
        if name not in runs:
            raise InvalidArgument(f"queue {name!r} is not in the recording, which has {', '.join(sorted(runs))}")
    return [replace(by_name.get(name, QueueLoad(name)), run=empirical(seen)) for name, seen in sorted(runs.items())]


def _lines(text: str, name: str) -> Iterable[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = tuple(column.strip().lower().replace("_", " ") for column in next(reader, []))
        if header != COLUMNS:
            raise InvalidArgument(
                f"{name} line 1: the header must be {','.join(COLUMNS)}, not {preview(','.join(header))}"
            )
        for row in reader:
            if len(row) != len(COLUMNS):
                raise InvalidArgument(f"{name} line {reader.line_num}: expected 3 fields, not {len(row)}")
            yield reader.line_num, row
    except csv.Error as error:
        raise InvalidArgument(f"{name} line {reader.line_num}: {error}") from error


def _row(row: list[str]) -> Row:
    queue, arrival, run = row
    run_s = float(run) if _is_number(run) else math.nan
    if not 0 <= run_s <= _RUN_MAX_S:
        raise InvalidArgument(f"run seconds must be a number from 0 to {_RUN_MAX_S:,.0f}, not {preview(run)}")
    return Row(plain_name("queue", queue), _arrival(arrival), run_s)


def _arrival(text: str) -> float:
    if _is_number(text) and 0 <= float(text) <= 1e11:
        return float(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidArgument(
            f"arrival must be 0 or more seconds, or a time like 2026-05-17T18:00:00Z, not {preview(text)}"
        ) from error
    # The UTC offset is dropped, because the load of a day follows local time.
    return at.replace(tzinfo=UTC).timestamp()


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
