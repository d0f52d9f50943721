"""Exit codes, and the one line on stderr that goes with each of them."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from tickwheel.embedded import EmbeddedServerError
from tickwheel.errors import (
    InvalidArgument,
    MessageNotFound,
    NamespaceNotFound,
    QueueNotFound,
    TickwheelError,
    Unavailable,
)


class ExitCode(IntEnum):
    """What a command ends with. 2 is also what a mistyped command line ends with."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNAVAILABLE = 3
    NOT_FOUND = 4
    INTERRUPTED = 130
    BROKEN_PIPE = 141


EXIT_CODES_HELP = """\b
Exit codes:
  0  done
  1  refused, or failed: one line on stderr says why
  2  the command line or an argument is wrong; nothing was sent
  3  the server cannot be reached, or did not answer in time
  4  no such namespace, queue or message; dequeue: nothing to deliver"""


class CommandError(Exception):
    """A command's own reason to end with another code than 0, where no error of the client says it."""

    def __init__(self, text: str, code: ExitCode = ExitCode.REFUSED) -> None:
        super().__init__(text)
        self.code = code


@contextmanager
def report_errors() -> Iterator[None]:
    """Ends the command with the code and the line that belong to what was raised."""
    try:
        yield
        # Here, so that a reader who has left is noticed here.
        sys.stdout.flush()
    except BrokenPipeError as error:
        # The reader of our output has seen enough (`| head`): no line, and no second try when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.BROKEN_PIPE) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(ExitCode.INTERRUPTED) from error
    except (CommandError, TickwheelError, EmbeddedServerError, OSError) as error:
        print_error(str(error))
        raise typer.Exit(exit_code(error)) from error


def print_error(text: str) -> None:
    """The one line."""
    print(f"tickwheel: {text}", file=sys.stderr)


def exit_code(error: Exception) -> ExitCode:
    """The code that stands for an error."""
    match error:
        case CommandError():
            return error.code
        case NamespaceNotFound() | QueueNotFound() | MessageNotFound():
            return ExitCode.NOT_FOUND
        case Unavailable() | EmbeddedServerError():
            return ExitCode.UNAVAILABLE
        case InvalidArgument():
            return ExitCode.USAGE
        case _:
            return ExitCode.REFUSED
