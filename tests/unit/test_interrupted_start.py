"""Ctrl-C while a command starts ends the command like Ctrl-C while it runs: with exit code 130, and no traceback."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

COMMAND = "tickwheel.cli.commands.acl"

# Runs a command, and sends the signal when the command imports a module, or reads its arguments.
PROGRAM = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.{handler})

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == "{when}":
            interrupt()

class Arguments(list):
    def __getitem__(self, key):
        if isinstance(key, slice) and "{when}" == "arguments":
            interrupt()
        return super().__getitem__(key)

sys.meta_path.insert(0, Interrupter())
from tickwheel.cli import main
sys.argv = Arguments(["tickwheel", {arguments}])
main()
"""


def interrupt(when: str, handler: str) -> tuple[int, str, str]:
    """Run a command that is interrupted at this point. Return its exit code, stdout and stderr."""
    # A command is imported when the command line names it.
    arguments = '"acl"' if when == COMMAND else '"--version"'
    program = PROGRAM.format(when=when, handler=handler, arguments=arguments)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("when", ["tickwheel.cli.app", COMMAND, "arguments"])
def test_ctrl_c_while_a_command_starts_ends_it_with_130_and_no_output(when: str) -> None:
    assert interrupt(when, "default_int_handler") == (130, "", "")


@pytest.mark.parametrize("when", ["tickwheel.cli.app", "arguments"])
def test_a_command_in_the_background_ignores_ctrl_c_while_it_starts(when: str) -> None:
    code, stdout, stderr = interrupt(when, "SIG_IGN")
    assert (code, stdout.split()[0], stderr) == (0, "tickwheel", "")
