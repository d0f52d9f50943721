"""The log format of programs: text lines or JSON documents, on stderr. No other module configures logging."""

import json as json_documents
import logging
import reprlib
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

from tickwheel.runtime.text_escape import cut_middle, escape_unprintable, indent_lines

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Limits of one line. A value may come from other programs, such as the error text of another server.
_VALUE_BYTES: Final = 8 * 1024
_TRACEBACK_BYTES: Final = 64 * 1024


def log_to_stderr(*, json: bool = False, verbose: bool = False, lowest: int = logging.INFO) -> logging.Handler:
    """Configure logging: the level ``lowest`` and above, or DEBUG and above if ``verbose``. Return the handler.

    Uncaught exceptions go to the log, too: their text may come from other programs, and Python would print the text as
    it is. With ``json``, Python's warnings also go to the log, so that every line on stderr is JSON.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(json))
    logging.basicConfig(level=logging.DEBUG if verbose else lowest, handlers=[handler])
    _handle_uncaught(logging.getLogger("tickwheel").handle)
    if json:
        logging.captureWarnings(True)
    return handler


def print_uncaught(*, json: bool) -> None:
    """Print uncaught exceptions in the format of the log, in a program that has no log."""
    formatter = _formatter(json)

    def print_record(record: logging.LogRecord) -> None:
        sys.stderr.write(f"{formatter.format(record)}\n")
        sys.stderr.flush()

    _handle_uncaught(print_record)


def print_line(text: str, *, json: bool, level: int = logging.INFO) -> None:
    """Print a line on stderr: the escaped text, or with ``json`` a document like that of a log line. If the text has
    several lines, all but the first are indented.

    The line is written in one call, so that lines of several processes do not mix, even if stderr is unbuffered.
    """
    record = logging.LogRecord("tickwheel", level, "", 0, text, None, None)
    sys.stderr.write(f"{JsonLines().format(record) if json else indent_lines(text)}\n")
    sys.stderr.flush()


def print_error(error: Exception, *, json: bool) -> None:
    """Print the error that ends a program on stderr."""
    print_line(str(error) if json else f"tickwheel: {error}", json=json, level=logging.ERROR)


def _formatter(json: bool) -> logging.Formatter:
    return JsonLines() if json else TextLines(_FORMAT)


def _handle_uncaught(handle: Callable[[logging.LogRecord], None]) -> None:
    """Pass a record of each exception that nothing catches: in a thread, in the program, or in a finalizer."""

    def report(text: str, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        if issubclass(kind, Exception):
            error = kind() if error is None else error
            handle(logging.LogRecord("tickwheel", logging.CRITICAL, "", 0, text, None, (kind, error, trace)))

    def report_unraisable(args: "sys.UnraisableHookArgs") -> None:
        text = f"{args.err_msg or 'exception ignored in'}: {reprlib.repr(args.object)}"
        report(text, args.exc_type, args.exc_value, args.exc_traceback)

    sys.excepthook = lambda *args: report("unexpected error", *args)
    threading.excepthook = lambda args: report("unexpected error", args.exc_type, args.exc_value, args.exc_traceback)
    sys.unraisablehook = report_unraisable


class TextLines(logging.Formatter):
    """Formats a record as one printable line, and its traceback as indented lines. Long texts are cut.

    Records contain ids, names and errors that other programs chose. Escaped, they cannot add a line to the log, and
    cannot control the terminal that shows the log.
    """

    def format(self, record: logging.LogRecord) -> str:
        record.message = cut_middle(record.getMessage(), _VALUE_BYTES)
        record.asctime = self.formatTime(record, self.datefmt)
        text = escape_unprintable(self.formatMessage(record))
        if record.exc_info:
            text += "\n" + cut_middle(self.formatException(record.exc_info), _TRACEBACK_BYTES)
        if record.stack_info:
            text += "\n" + cut_middle(self.formatStack(record.stack_info), _TRACEBACK_BYTES)
        # A log line begins with its time, so an indented line cannot be mistaken for one.
        return indent_lines(text)


class JsonLines(logging.Formatter):
    """Formats a log line as one JSON document. Long values are cut."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "text": cut_middle(record.getMessage(), _VALUE_BYTES),
        }
        # See `log_fields`.
        fields |= {name: _cut_value(value) for name, value in getattr(record, "fields", {}).items()}
        if record.exc_info:
            fields["traceback"] = cut_middle(self.formatException(record.exc_info), _TRACEBACK_BYTES)
        return json_documents.dumps(fields)


def _cut_value(value: Any) -> Any:
    """Return the value of a field. A long list or mapping becomes the cut text of its JSON."""
    if isinstance(value, str):
        return cut_middle(value, _VALUE_BYTES)
    if not isinstance(value, list | tuple | dict):
        return value
    text = json_documents.dumps(value)
    return value if len(text) <= _VALUE_BYTES else cut_middle(text, _VALUE_BYTES)
