"""The exit code of each error, and the error line on stderr."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from tickwheel.cli.output import print_failure
from tickwheel.client.exit_codes import ExitCode, exit_code_of
from tickwheel.errors import TickwheelError

EXIT_CODES_HELP = """\b
Exit codes:
  0  done
  1  rejected or failed; one line on stderr names the reason
  2  the command line or an argument is invalid
  3  the server is unreachable, or did not answer in time
  4  no such namespace, queue or message; dequeue: nothing to deliver
  130  interrupted by Ctrl-C"""


class CommandError(Exception):
    """A failure of a command that no error of the client describes. ``code`` is the exit code."""

    def __init__(self, text: str, code: ExitCode = ExitCode.REFUSED) -> None:
        super().__init__(text)
        self.code = code


@contextmanager
def report_errors(rephrase: Callable[[str], str] = str) -> Iterator[None]:
    """Report an exception of the block on stderr, and exit with its code. ``rephrase`` changes the text of an error."""
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
    except (CommandError, TickwheelError, OSError) as error:
        print_failure(CommandError(rephrase(str(error))))
        raise typer.Exit(exit_code(error)) from error


def exit_code(error: Exception) -> ExitCode:
    """Return the exit code of an error."""
    if isinstance(error, CommandError):
        return error.code
    return exit_code_of(error) if isinstance(error, TickwheelError) else ExitCode.REFUSED
