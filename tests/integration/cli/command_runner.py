"""Runs a command in tests and reads its output."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import Result

from services.serving_program import ServingProgram

Run = Callable[..., Result]
Start = Callable[..., ServingProgram]
# Writes a module by its name and its source, and returns its path.
WriteModule = Callable[[str, str], Path]
TICKWHEEL = (sys.executable, "-m", "tickwheel")
ENDS_S = 30
ENCODE = ("--exclusive-key", "project")


def answer_on_terminal(answer: str, *args: str) -> tuple[int, str]:
    """Run a command whose standard input is a terminal, and answer its question.

    Return the exit code, and the text on stdout and stderr.
    """
    main, terminal = pty.openpty()
    try:
        os.write(main, f"{answer}\n".encode())
        command = [*TICKWHEEL, *args]
        ended = subprocess.run(
            command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=ENDS_S, check=False
        )
    finally:
        os.close(terminal)
        os.close(main)
    return ended.returncode, ended.stdout.decode()


def documents(result: Result) -> list[Any]:
    """Return each line of the output as JSON."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def document(result: Result) -> Any:
    [answer] = documents(result)
    return answer


def lines_file(folder: Path, *lines: str) -> Path:
    path = folder / "messages.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path
