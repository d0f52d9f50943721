"""How a command is run in tests, and how its output is read."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

Run = Callable[..., Result]
Start = Callable[..., tuple[subprocess.Popen[str], str]]
TICKWHEEL = (sys.executable, "-m", "tickwheel")
ENDS_S = 30
ENCODE = ("--exclusive-key", "project")


def documents(result: Result) -> list[Any]:
    """Each line of the output as JSON."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def document(result: Result) -> Any:
    [found] = documents(result)
    return found


def lines_file(folder: Path, *lines: str) -> Path:
    path = folder / "messages.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def wait_for_line(process: subprocess.Popen[str], word: str) -> str:
    """The line of its log that has the word; fails where it ends without."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if word in line:
            return line
    pytest.fail(f"ended without {word!r}: {seen}")


@contextmanager
def ended_at_the_end() -> Iterator[list[subprocess.Popen[str]]]:
    """What is entered here ends with the block. It is not killed: it may be the last to leave an embedded server."""
    started: list[subprocess.Popen[str]] = []
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
            process.wait(ENDS_S)
            assert process.stderr is not None
            process.stderr.close()
