"""A command imports what it needs: each start of a process costs CPU time."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

# Runs a command, and prints the modules that it has imported.
PROGRAM = """
import sys
from tickwheel.cli import main
sys.argv = ["tickwheel", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_a_command_imports_neither_other_commands_nor_the_libraries_of_tables_and_conversions() -> None:
    command = [sys.executable, "-c", PROGRAM, "acl", "--namespace", "orders", "--timeout", "5s"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    modules = set(ended.stderr.split())
    assert "user orders" in ended.stdout
    assert [name for name in modules if name.startswith("tickwheel.cli.commands.")] == ["tickwheel.cli.commands.acl"]
    assert not modules & {"rich", "pydantic", "grpc", "msgspec", "prometheus_client"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("serve", "--listen", b"\xff"), "not '\\udcff'"),
        (("enqueue", "orders", "x", "--delay", "5"), "a duration is written like 15m"),
        (("messages", "orders", "--limit", "0"), "greater than or equal to 1"),
    ],
)
def test_an_invalid_value_is_refused_with_the_reason(arguments: tuple[str | bytes, ...], reason: str) -> None:
    command = [sys.executable, "-m", "tickwheel", *arguments]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False, env=os.environ | {"COLUMNS": "300"})
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert reason in ended.stderr.decode()
