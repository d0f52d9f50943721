"""The question before a command that removes data."""

import sys

import typer

from tickwheel.cli.exit_codes import CommandError
from tickwheel.runtime.text_escape import escape_unprintable


def confirm(question: str, *, yes: bool) -> None:
    """Ask the user to confirm, unless ``yes``. Raises CommandError if the user declines, or if there is no terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{question} Nothing was changed: there is no terminal to ask, so confirm with --yes")
    if not typer.confirm(escape_unprintable(question), err=True):
        raise CommandError("nothing was changed")
