"""Generates modules of the blocking client from those of the asyncio client.

    python tests/support/generate_blocking.py            write the modules
    python tests/support/generate_blocking.py --check    exit with 1 if a module is not current

Edit the asyncio modules, never the results. The differences are in REPLACEMENTS, except one: the script omits
paragraphs that begin with "asyncio:". In a docstring, such a paragraph is text. In code, it is a comment with the
statements below it, up to a blank line. The script also removes unused imports.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "scheduler" / "tickwheel"
# The asyncio modules, and the modules generated from them.
MODULES: Final = {
    PACKAGE / "client" / "asyncio_queue.py": PACKAGE / "client" / "blocking_queue.py",
    PACKAGE / "client" / "asyncio_namespace.py": PACKAGE / "client" / "blocking_namespace.py",
    PACKAGE / "redis" / "asyncio_executor.py": PACKAGE / "redis" / "blocking_executor.py",
}
HEADER: Final = "# Generated from {} by `make format` (tests/support/generate_blocking.py). Do not edit.\n\n"

# Patterns and replacements, applied in this order.
REPLACEMENTS: Final = (
    (r"\n\n +asyncio:.*?(?=\n\n|\n +\"\"\")", ""),
    (r"\n +# asyncio:.*?\n(?=\n)\n?", "\n"),
    (r"\nimport asyncio\n", "\nimport time\n"),
    (r"\bawait asyncio\.sleep\b", "time.sleep"),
    (r"\bawait asyncio\.to_thread\((.*?)\)", r"\1()"),
    (r"\bawait self\._servers\.release\((.*?), connection\)", r"self._servers.pool(\1).release(connection)"),
    (r"\bawait self\._servers\.send\(connection, (\w+), answer_s\)", r"connection.send_packed_command(\1)"),
    (r"\bawait self\._servers\.answer\(connection, answer_s\)", "read_answer(connection)"),
    (r"\bdisconnect\(nowait=True\)", "disconnect()"),
    (r"\basync (?=def|for|with)\b", ""),
    (r"\bawait ", ""),
    (r"\bfor (\w+) in ([^\n]+):\n +yield \1\b", r"yield from \2"),
    (r"\bAsyncIterator, Iterable\b", "Iterable"),
    (r"\bAsyncIterator\b", "Iterable"),
    (r"\bAsyncRedisExecutor\b", "RedisExecutor"),
    (r"\bimport AsyncConnectionPools\b", "import ConnectionPools, read_answer"),
    (r"\bAsyncConnectionPools\b", "ConnectionPools"),
    (r"\basyncio_pools\b", "pools"),
    (r"\bwakeup_task\b", "wakeup_thread"),
    (r"\bWakeupTask\b", "WakeupThread"),
    (r"\btickwheel\.client\.asyncio(?=\b|_)", "tickwheel.client.blocking"),
    (r"\bthe asyncio client\b", "the blocking client"),
    (r"\bbelongs to the event loop of its client\.", "safe to share between threads."),
    (r"\bin one event loop, on redis-py's connections\b", "with blocking sockets, on redis-py's connections"),
    (r"\bservers of a cluster, on one event loop\.", "servers of a cluster. Thread-safe."),
)


def main() -> None:
    for source, result in MODULES.items():
        current = generate(source)
        if sys.argv[1:] != ["--check"]:
            result.write_text(current)
        elif result.read_text() != current:
            sys.exit(f"{result} is out of date: edit {source.name}, then run `make format`")


def generate(source: Path) -> str:
    """Return the blocking module for an asyncio module, with sorted imports and without unused imports."""
    text = source.read_text()
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    text = HEADER.format(source.name) + text
    for command in (["check", "--select", "F401,I", "--fix", "--quiet"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(source), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    main()
