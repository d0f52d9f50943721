"""The exit codes of commands, and of worker processes that cannot start."""

from enum import IntEnum

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


def exit_code_of(error: TickwheelError) -> ExitCode:
    """Return the exit code of a program that the error ends."""
    match error:
        case NamespaceNotFound() | QueueNotFound() | MessageNotFound():
            return ExitCode.NOT_FOUND
        case Unavailable() | EmbeddedServerError():
            return ExitCode.UNAVAILABLE
        case InvalidArgument():
            return ExitCode.USAGE
        case _:
            return ExitCode.REFUSED
