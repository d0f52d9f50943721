"""The log format of programs: text lines or JSON documents, on stderr. No other module configures logging."""

import json as json_documents
import logging
import sys
from datetime import UTC, datetime

from tickwheel.runtime.text_escape import escape_unprintable, indent_lines

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr(*, json: bool = False, verbose: bool = False, lowest: int = logging.INFO) -> logging.Handler:
    """Configure logging: the level ``lowest`` and above, or DEBUG and above if ``verbose``. Return the handler."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if json else TextLines(_FORMAT))
    logging.basicConfig(level=logging.DEBUG if verbose else lowest, handlers=[handler])
    return handler


class TextLines(logging.Formatter):
    """Formats a record as one printable line, and its traceback as indented lines.

    Records contain ids, names and errors that other programs chose. Escaped, they cannot add a line to the log, and
    cannot control the terminal that shows the log.
    """

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, self.datefmt)
        text = escape_unprintable(self.formatMessage(record))
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        if record.stack_info:
            text += "\n" + self.formatStack(record.stack_info)
        # A log line begins with its time, so an indented line cannot be mistaken for one.
        return indent_lines(text)


class JsonLines(logging.Formatter):
    """Formats a log line as one JSON document."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "text": record.getMessage(),
        }
        # See `log_fields`.
        fields |= getattr(record, "fields", {})
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json_documents.dumps(fields)
