"""Ctrl-C while a command starts ends the command like Ctrl-C while it runs: with exit code 130, and no traceback."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

# Sends the signal when the module is imported.
PROGRAM = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.{handler})

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
from tickwheel.cli import main
sys.argv[1:] = ["--version"]
main()
"""


def interrupt(module: str, handler: str) -> tuple[int, str, str]:
    """Run a command that is interrupted when it imports the module. Return its exit code, stdout and stderr."""
    program = PROGRAM.format(module=module, handler=handler)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("module", ["tickwheel.cli.app", "tickwheel.cli.commands.worker"])
def test_ctrl_c_during_the_imports_of_a_command_ends_it_with_130_and_no_output(module: str) -> None:
    assert interrupt(module, "default_int_handler") == (130, "", "")


def test_a_command_in_the_background_ignores_ctrl_c_during_its_imports() -> None:
    code, stdout, stderr = interrupt("tickwheel.cli.app", "SIG_IGN")
    assert (code, stdout.split()[0], stderr) == (0, "tickwheel", "")
