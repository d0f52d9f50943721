"""Generates the blocking `Queue` and `Message` from those of the asyncio client.

    python tests/support/generate_blocking.py            write client/blocking_queue.py
    python tests/support/generate_blocking.py --check    exit with 1 if the file is not current

Edit client/asyncio_queue.py, never the result. REPLACEMENTS holds all differences between the two files but one: a
paragraph of a docstring that begins with "asyncio:" is left out.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

CLIENT: Final = Path(__file__).parents[2] / "scheduler" / "tickwheel" / "client"
SOURCE: Final = CLIENT / "asyncio_queue.py"
RESULT: Final = CLIENT / "blocking_queue.py"
HEADER: Final = (
    "# Generated from asyncio_queue.py by `make format` (tests/support/generate_blocking.py). Do not edit.\n\n"
)

# Patterns and replacements, applied in this order.
REPLACEMENTS: Final = (
    (r"\n\n +asyncio:.*?(?=\n\n|\n +\"\"\")", ""),
    (r"\basync (?=def|for|with)\b", ""),
    (r"\bawait ", ""),
    (r"\bfor (\w+) in ([^\n]+):\n +yield \1\b", r"yield from \2"),
    (r"\bAsyncIterator, Iterable\b", "Iterable"),
    (r"\bAsyncIterator\b", "Iterable"),
    (r"\btickwheel\.client\.asyncio\b", "tickwheel.client.blocking"),
    (r"\bthe asyncio client\b", "the blocking client"),
    (r"Cheap to create; belongs to the event loop of its client\.", "Cheap to create, safe to share between threads."),
)


def main() -> None:
    current = generate(SOURCE.read_text())
    if sys.argv[1:] != ["--check"]:
        RESULT.write_text(current)
    elif RESULT.read_text() != current:
        sys.exit(f"{RESULT} is out of date: edit {SOURCE.name}, then run `make format`")


def generate(source: str) -> str:
    """Return the blocking module for the text of the asyncio module, formatted."""
    for pattern, replacement in REPLACEMENTS:
        source = re.sub(pattern, replacement, source, flags=re.DOTALL)
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(RESULT), "-"]
    return subprocess.run(ruff, input=HEADER + source, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
