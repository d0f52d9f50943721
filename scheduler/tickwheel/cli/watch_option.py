"""The option --watch: the command prints its output again and again, until Ctrl-C."""

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Final

import typer

from tickwheel.cli.parameter_types import option_parser, parse_duration
from tickwheel.cli.tables import console
from tickwheel.errors import InvalidArgument
from tickwheel.model.validation import preview

_SHORTEST: Final = timedelta(milliseconds=100)


def repeat(watch: timedelta | None, print_once: Callable[[], None]) -> None:
    """Print the output of a command once, or again after each ``watch``. On a terminal, it replaces the last output."""
    print_once()
    while watch is not None:
        # Otherwise, the output stays in the buffer of a pipe.
        sys.stdout.flush()
        time.sleep(watch.total_seconds())
        console().clear()
        print_once()


def _pause(text: str) -> timedelta:
    """Parse the time between two outputs. Raises InvalidArgument."""
    pause = parse_duration(text)
    if pause < _SHORTEST:
        raise InvalidArgument(f"{preview(text)} is too short: write 100ms or more")
    return pause


Watch = Annotated[
    timedelta | None,
    typer.Option(
        "--watch",
        metavar="DURATION",
        parser=option_parser(_pause),
        help="Print the output again after each DURATION, such as 2s, until Ctrl-C.",
    ),
]
