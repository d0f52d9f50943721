"""The standard streams as a shell may leave them: any may be closed (`<&-`, `>&-`), and is then no file at all."""

import os
import sys
from typing import BinaryIO

from tickwheel.errors import InvalidArgument


def prepare_streams() -> None:
    """Make all three usable, but for a closed input, which is refused where it is read.

    Refuses (SystemExit) a closed output before anything is done: nobody would learn what became of it.
    """
    for descriptor in range(3):
        _occupy(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # as long as the process
    if sys.stdout is None:
        sys.exit("tickwheel: standard output is closed, so nothing was done: send it to /dev/null if it is not wanted")
    for stream in (sys.stdout, sys.stderr):
        # An id or payload that the terminal's encoding lacks is escaped, not a crash.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def standard_input() -> BinaryIO:
    """Standard input, for a command that was told to read it."""
    if sys.stdin is None:
        raise InvalidArgument("there is nothing to read: standard input is closed; pipe or redirect something into it")
    return sys.stdin.buffer


def _occupy(descriptor: int) -> None:
    """A closed descriptor is the next one given out: a socket would be taken for a standard stream by our children."""
    try:
        os.fstat(descriptor)
    except OSError:
        # The lowest that is free, which is this one: those below are open by now. Children shall have it, too.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
