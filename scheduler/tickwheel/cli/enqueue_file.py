"""Enqueues a file or a pipe of JSON lines, in batches. An error names the invalid line, and counts the messages that
were enqueued before it."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from tickwheel import EnqueueResult, IdConflict, InvalidArgument, NewMessage, Queue
from tickwheel.cli.exit_codes import CommandError
from tickwheel.cli.json_lines import Line, LineError, lines
from tickwheel.cli.output import print_json
from tickwheel.cli.standard_streams import standard_input

_BATCH = 1_000


def enqueue_file(queue: Queue, source: Path, *, json: bool) -> None:
    """Enqueue the message of every line. With ``json``, print one line for each message; otherwise print the totals.

    Raises CommandError for an invalid line, and after the last line if the server rejected messages.
    """
    added = existing = 0
    refused: list[tuple[Line, str]] = []

    def add(batch: list[Line]) -> None:
        nonlocal added, existing
        results, why = _send(queue, batch)
        for line, result in zip(batch, results, strict=True):
            if result is None:
                refused.append((line, why))
                continue
            added += result.created
            existing += not result.created
            if json:
                print_result(result)

    with _open_source(source) as (file, advance):
        remaining_lines = lines(file)
        while True:
            batch, line_error = _next_batch(remaining_lines)
            try:
                add(batch)
            except LineError as invalid:
                # Part of the batch may have been sent. Send the lines before the invalid one again, with the same ids.
                add([line for line in batch if line.number < invalid.number])
                line_error = invalid
            if line_error is not None:
                raise CommandError(
                    f"{line_error}; {_describe_progress(added + existing, refused)}: fix the line, and enqueue the file"
                    " from this line on"
                ) from line_error
            if not batch:
                break
            advance(len(batch))
    if not json:
        print(f"{added:,} added" + (f", {existing:,} existed before" if existing else ""))
    if refused:
        first, why = refused[0]
        raise CommandError(
            f"line {first.number}: {why}"
            + (f"; {len(refused):,} lines were rejected in total" if len(refused) > 1 else "")
        )


def print_result(result: EnqueueResult) -> None:
    print_json({"id": result.id, "state": result.state, "created": result.created})


def _describe_progress(count: int, refused: Sequence[tuple[Line, str]]) -> str:
    """Return a summary of the lines before the invalid one."""
    text = (
        f"{count:,} message{' of the earlier lines is' if count == 1 else 's of the earlier lines are'} enqueued"
        if count
        else "nothing is enqueued"
    )
    if refused:
        first, reason = refused[0]
        text += f", {len(refused):,} rejected (line {first.number}: {reason})"
    return text


def _next_batch(remaining_lines: Iterator[Line]) -> tuple[list[Line], LineError | None]:
    """Return the next batch of lines, and the error of an invalid line that ended the batch early."""
    batch: list[Line] = []
    try:
        for line in islice(remaining_lines, _BATCH):
            batch.append(line)
    except LineError as refused:
        return batch, refused
    return batch, None


def _send(queue: Queue, batch: list[Line]) -> tuple[list[EnqueueResult | None], str]:
    """Return the result of each line (None if the server rejected the line), and the reason of the first rejection.

    Raises LineError for the first line that the client rejects.
    """
    taken = 0

    def messages() -> Iterator[NewMessage]:
        nonlocal taken
        for line in batch:
            taken += 1
            yield line.message

    try:
        return list(queue.enqueue_many(messages())), ""
    except (IdConflict, InvalidArgument) as error:
        if not error.results:
            raise LineError(batch[taken - 1].number, str(error)) from error
        # Without the error's summary: it counts the messages of this batch, but the final report covers the whole file.
        return error.results, str(error).removesuffix(error.summary)


def _open_file(source: Path) -> BinaryIO:
    try:
        return source.open("rb")
    except OSError as error:
        raise InvalidArgument(f"cannot read {source}: {error.strerror}") from error


@contextmanager
def _open_source(source: Path) -> Iterator[tuple[BinaryIO, Callable[[int], None]]]:
    """Yield the open file, and a function that advances the progress bar. The bar is visible only on a terminal."""
    # Imported here, because the library takes 40 ms to import.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    show_progress = sys.stderr.isatty()
    columns = (TextColumn("{task.completed:,} messages"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not show_progress, transient=True) as bar:
        if str(source) == "-":
            task = bar.add_task("", total=None)
            yield standard_input(), lambda count: bar.advance(task, count)
        else:
            with _open_file(source) as file:
                total = sum(1 for line in file if line.strip()) if show_progress else None
                file.seek(0)
                task = bar.add_task("", total=total)
                yield file, lambda count: bar.advance(task, count)
