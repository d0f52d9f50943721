"""The standard streams of the process. A shell can close any of them (`<&-`, `>&-`); Python then sets it to None."""

import os
import sys
from typing import BinaryIO

from tickwheel.errors import InvalidArgument


def prepare_streams() -> None:
    """Open /dev/null in place of closed streams. A closed input is an error only if a command reads it.

    Raises SystemExit if standard output is closed, before the command does anything: the result would be lost.
    """
    for descriptor in range(3):
        _occupy(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # open until the process ends
    if sys.stdout is None:
        sys.exit("tickwheel: standard output is closed, so nothing was done: redirect it to /dev/null to discard it")
    for stream in (sys.stdout, sys.stderr):
        # If the terminal's encoding lacks a character of an id or payload, the character is printed as an escape.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def standard_input() -> BinaryIO:
    """Return standard input. Raises InvalidArgument if it is closed."""
    if sys.stdin is None:
        raise InvalidArgument("standard input is closed: pipe or redirect data into it")
    return sys.stdin.buffer


def _occupy(descriptor: int) -> None:
    """Open /dev/null if the descriptor is closed.

    Otherwise the next socket would get the number, and child processes would use the socket as a standard stream.
    """
    try:
        os.fstat(descriptor)
    except OSError:
        # `open` returns the lowest free descriptor. This is `descriptor`, because all lower ones are open by now.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
