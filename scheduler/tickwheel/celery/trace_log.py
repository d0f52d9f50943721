"""The errors that Celery's tracer logs with their tracebacks. The lines of the worker about them have no traceback."""

import logging
from typing import Final

from tickwheel.tasks.run_context import CURRENT_RUN

_TRACER_LOG: Final = logging.getLogger("celery.app.trace")


class _ErrorMark(logging.Filter):
    """Accepts every line. If a line has the error of the current run, mark the run."""

    def filter(self, record: logging.LogRecord) -> bool:
        run = CURRENT_RUN.get()
        if run is not None and record.exc_info and record.levelno >= logging.ERROR:
            run._is_error_logged = True
        return True


_MARK: Final = _ErrorMark()


def mark_logged_errors() -> None:
    """Mark the runs of this process whose errors the tracer logs. Further calls have no effect."""
    _TRACER_LOG.addFilter(_MARK)
