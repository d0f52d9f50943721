"""The log format of programs: text lines or JSON documents, on stderr. No other module configures logging."""

import logging
import reprlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from json import JSONEncoder
from types import TracebackType
from typing import Any, Final, Protocol, TextIO

from tickwheel.runtime.signals import interrupt_again
from tickwheel.runtime.text_escape import cut_middle, escape_unprintable, indent_lines

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Limits of one line. A value may come from other programs, such as the error text of another server.
_VALUE_BYTES: Final = 8 * 1024
_TRACEBACK_BYTES: Final = 64 * 1024
# The characters that are written in one call, unless a single line is longer. Linux writes up to 4,096 bytes to a pipe
# in one piece, and nearly all characters of a log have one byte.
_PIECE_CHARACTERS: Final = 3_500
# The fields of an application can have any values.
_encode: Final = JSONEncoder(default=str).encode
_RESERVED: Final = frozenset(("at", "level", "logger", "text"))
# Returns the fields of the task to which the calling code belongs, at least its task and id, or None.
RunningTask = Callable[[], dict[str, Any] | None]


class Lines(Protocol):
    """Lines of the log. A text log does not need their fields."""

    def texts(self) -> list[str]:
        """Return the text of each line. There is at least one."""

    def with_fields(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the text of each line, and its fields (`log_fields`). No field is named at, level, logger or text."""


def log_to_stderr(
    *, json: bool = False, verbose: bool = False, lowest: int = logging.INFO, running_task: RunningTask | None = None
) -> logging.Handler:
    """Configure logging: the level ``lowest`` and above, or DEBUG and above if ``verbose``. Return the handler.

    Uncaught exceptions go to the log, too: their text may come from other programs, and Python would print the text as
    it is. With ``json``, Python's warnings also go to the log, so that every line on stderr is JSON. With
    ``running_task``, the lines that other code logs in a task have the fields of the task, or begin with ``task[id]:``.
    """
    handler = StderrHandler(_formatter(json, running_task))
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


def _formatter(json: bool, running_task: RunningTask | None = None) -> "JsonLines | TextLines":
    return JsonLines(running_task) if json else TextLines(_FORMAT, running_task)


def _handle_uncaught(handle: Callable[[logging.LogRecord], None]) -> None:
    """Pass a record of each exception that nothing catches: in a thread, in the program, or in a finalizer."""

    def report(text: str, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        if issubclass(kind, Exception):
            error = kind() if error is None else error
            handle(logging.LogRecord("tickwheel", logging.CRITICAL, "", 0, text, None, (kind, error, trace)))

    def report_unraisable(args: "sys.UnraisableHookArgs") -> None:
        if issubclass(args.exc_type, KeyboardInterrupt):
            interrupt_again()
        text = f"{args.err_msg or 'exception ignored in'}: {reprlib.repr(args.object)}"
        report(text, args.exc_type, args.exc_value, args.exc_traceback)

    sys.excepthook = lambda *args: report("unexpected error", *args)
    threading.excepthook = lambda args: report("unexpected error", args.exc_type, args.exc_value, args.exc_traceback)
    sys.unraisablehook = report_unraisable


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes the log to stderr, either records or lines without records."""

    def __init__(self, formatter: "JsonLines | TextLines") -> None:
        super().__init__(sys.stderr)
        self.setFormatter(formatter)
        self._lines = formatter

    def write_lines(self, level: int, logger: str, lines: Lines) -> None:
        """Write lines that are formatted like records of this level and logger, with the present time.

        Several short lines are written in one call. The text of a longer call could mix with that of other processes.
        """
        formatted = self._lines.format_lines(time.time(), logging.getLevelName(level), logger, lines)
        with self.lock or nullcontext():
            block = "".join(formatted)
            if len(block) <= _PIECE_CHARACTERS:
                self._write(block)
                return
            part, size = list[str](), 0
            for line in formatted:
                if part and size + len(line) > _PIECE_CHARACTERS:
                    self._write("".join(part))
                    part, size = [], 0
                part.append(line)
                size += len(line)
            self._write("".join(part))

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.flush()
        except Exception:
            # As for a record: a log that cannot be written ends no program.
            self.handleError(logging.makeLogRecord({"msg": "%s", "args": (cut_middle(text, _VALUE_BYTES),)}))


class TextLines(logging.Formatter):
    """Formats a record as one printable line, and its traceback as indented lines. Long texts are cut.

    Records contain ids, names and errors that other programs chose. Escaped, they cannot add a line to the log, and
    cannot control the terminal that shows the log.
    """

    # The last second that `format_lines` has formatted, and its text.
    _last_second = (-1, "")

    def __init__(self, line_format: str, running_task: RunningTask | None = None) -> None:
        super().__init__(line_format)
        self._running_task = running_task

    def format(self, record: logging.LogRecord) -> str:
        record.message = cut_middle(record.getMessage(), _VALUE_BYTES)
        if task := _task_fields(record, self._running_task):
            name = f"{task['task']}[{task['id']}]"
            # For example, the lines of Celery's tracer name the task already.
            if name not in record.message:
                record.message = f"{name}: {record.message}"
        record.asctime = self.formatTime(record, self.datefmt)
        text = escape_unprintable(self.formatMessage(record))
        if record.exc_info:
            text += "\n" + cut_middle(self.formatException(record.exc_info), _TRACEBACK_BYTES)
        if record.stack_info:
            text += "\n" + cut_middle(self.formatStack(record.stack_info), _TRACEBACK_BYTES)
        # A log line begins with its time, so an indented line cannot be mistaken for one.
        return indent_lines(text)

    def format_lines(self, created: float, level: str, logger: str, lines: Lines) -> list[str]:
        """Return each line as `format` returns it for a record, with its line break."""
        # Two threads may write the pair at once. Each of them stores a pair that is right.
        second, text = self._last_second
        if second != int(created):
            second, text = int(created), time.strftime(self.default_time_format, self.converter(created))
            self._last_second = second, text
        at = f"{text},{int(created % 1 * 1_000):03}"
        prefix = str(self._fmt) % {"asctime": at, "levelname": level, "name": logger, "message": ""}
        texts = lines.texts()
        # Checks of all texts at once take a quarter of the time of checks of each.
        if not (joined := "".join(texts)).isprintable() or (
            len(joined) > _VALUE_BYTES // 4 and max(map(len, texts)) > _VALUE_BYTES // 4
        ):
            texts = [escape_unprintable(cut_middle(text, _VALUE_BYTES)) for text in texts]
        return [f"{prefix}{text}\n" for text in texts]


class JsonLines(logging.Formatter):
    """Formats a log line as one JSON document. Long values are cut."""

    def __init__(self, running_task: RunningTask | None = None) -> None:
        super().__init__()
        self._running_task = running_task

    def format(self, record: logging.LogRecord) -> str:
        fields = _head(record.created, record.levelname, record.name)
        task = _task_fields(record, self._running_task)
        fields |= _rest(record.getMessage(), task | _own_fields(record))
        if record.exc_info:
            fields["traceback"] = cut_middle(self.formatException(record.exc_info), _TRACEBACK_BYTES)
        return _encode(fields)

    def format_lines(self, created: float, level: str, logger: str, lines: Lines) -> list[str]:
        """Return each line as `format` returns it for a record, with its line break."""
        head = _encode(_head(created, level, logger))[:-1]
        return [f"{head}, {_encode_rest(text, fields)}\n" for text, fields in lines.with_fields()]


def _task_fields(record: logging.LogRecord, running_task: RunningTask | None) -> dict[str, Any]:
    """Return the fields of the running task. The lines of this package have their own fields."""
    if running_task is None or record.name.partition(".")[0] == "tickwheel":
        return {}
    return running_task() or {}


def _own_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of the record (`log_fields`), or of a line of the application, which may have any. They must
    not replace the head of the line.
    """
    fields = getattr(record, "fields", None)
    if not isinstance(fields, Mapping):
        return {}
    return {f"{name}_" if name in _RESERVED else str(name): value for name, value in fields.items()}


def _head(created: float, level: str, logger: str) -> dict[str, Any]:
    at = datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds")
    return {"at": at, "level": level, "logger": logger}


def _rest(text: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a line that follow its head. Long values are cut."""
    return {"text": cut_middle(text, _VALUE_BYTES), **{name: _cut_value(value) for name, value in fields.items()}}


def _encode_rest(text: str, fields: Mapping[str, Any]) -> str:
    """Return the JSON of `_rest`, without its first brace."""
    encoded = _encode({"text": text, **fields})
    # No value of a short document is too long. A check of each value takes as long as the encoding.
    if len(encoded) > _VALUE_BYTES // 4:
        encoded = _encode(_rest(text, fields))
    return encoded[1:]


def _cut_value(value: Any) -> Any:
    """Return the value of a field. A long list or mapping becomes the cut text of its JSON."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, list | tuple | dict):
        text = _encode(value)
        return value if len(text) <= _VALUE_BYTES else cut_middle(text, _VALUE_BYTES)
    return cut_middle(str(value), _VALUE_BYTES)
