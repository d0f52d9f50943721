"""Errors in the code of an app that runs when a worker process starts, before the process takes messages."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tickwheel.client.exit_codes import ExitCode, exit_code_of
from tickwheel.errors import TickwheelError
from tickwheel.runtime.log_fields import log_fields
from tickwheel.tasks.runner import describe_error


class StartHookFailed(Exception):
    """Code of the app has raised an error, so the process cannot start. ``problem`` is a text that names the code."""

    def __init__(self, problem: str, error: BaseException) -> None:
        super().__init__(f"{problem}: {describe_error(error)}")
        self._error = error
        self.exit_code = exit_code_of(error) if isinstance(error, TickwheelError) else ExitCode.USAGE

    def write_to(self, log: logging.Logger) -> None:
        """Log the error, with its traceback if it is none of Tickwheel's errors."""
        trace = None if isinstance(self._error, TickwheelError) else self._error
        log.error("%s", self, exc_info=trace, extra=log_fields("process not started", reason=str(self)))


@contextmanager
def start_hook(name: str) -> Iterator[None]:
    """Raise StartHookFailed with the name if the block raises an error, or ends the process by `SystemExit`."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise StartHookFailed(f"{name} failed", error) from error


@contextmanager
def importing(label: str) -> Iterator[None]:
    """Raise StartHookFailed if the block, which imports modules of the app, raises an error that is not Tickwheel's, or
    ends the process by `SystemExit`.
    """
    try:
        yield
    except TickwheelError:
        raise
    except (Exception, SystemExit) as error:
        raise StartHookFailed(f"cannot import {label}", error) from error
