"""The command of a child process that runs a module of Tickwheel.

With ``python -m``, Python searches the working directory first, before the standard library. If another user has put a
file with the name of a module, such as ``argparse``, into a shared folder, the child would execute this file. The
option ``-P`` prevents this. No other module of Tickwheel starts an interpreter.
"""

import os
import sys
from pathlib import Path
from typing import Final

# The folder from which this program has imported Tickwheel.
_PACKAGE_FOLDER: Final = Path(__file__).parents[2]


def python_module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs the module ``name`` with this interpreter and with these arguments.

    The child does not search its working directory for modules, unless this program has imported Tickwheel from there.
    If this program ignores the environment variables of Python (``-E``) or the packages of the user (``-s``), the child
    ignores them, too.
    """
    options = []
    if sys.flags.ignore_environment:
        options.append("-E")
    if sys.flags.no_user_site:
        options.append("-s")
    if sys.flags.safe_path or not _is_working_directory(_PACKAGE_FOLDER):
        options.append("-P")
    return [sys.executable, *options, "-m", name, *arguments]


def _is_working_directory(folder: Path) -> bool:
    """Return whether the folder is the working directory. It is not if the working directory was removed."""
    try:
        return os.path.samefile(folder, os.curdir)
    except OSError:
        return False
