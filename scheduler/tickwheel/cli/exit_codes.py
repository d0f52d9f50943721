"""Exit codes, and the error line on stderr."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from tickwheel.cli.output import print_failure
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
    """Exit code of a command. The parser of the command line also exits with 2."""

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
  1  rejected or failed; one line on stderr names the reason
  2  the command line or an argument is invalid
  3  the server is unreachable, or did not answer in time
  4  no such namespace, queue or message; dequeue: nothing to deliver"""


class CommandError(Exception):
    """A failure of a command that no error of the client describes. ``code`` is the exit code."""

    def __init__(self, text: str, code: ExitCode = ExitCode.REFUSED) -> None:
        super().__init__(text)
        self.code = code


@contextmanager
def report_errors() -> Iterator[None]:
    """Report an exception of the block on stderr, and exit with its code."""
    try:
        yield
        # Flushed inside the block, so that a closed pipe is detected here.
        sys.stdout.flush()
    except BrokenPipeError as error:
        # The reader of the output has closed the pipe (`| head`), so print no error. Python flushes the output again at
        # exit; /dev/null accepts it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.BROKEN_PIPE) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(ExitCode.INTERRUPTED) from error
    except (CommandError, TickwheelError, EmbeddedServerError, OSError) as error:
        print_failure(error)
        raise typer.Exit(exit_code(error)) from error


def exit_code(error: Exception) -> ExitCode:
    """Return the exit code of an error."""
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
