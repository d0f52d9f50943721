"""The log of the commands that run until they are stopped: lines on stderr, or JSON documents."""

import json as json_documents
import logging
import sys
from datetime import UTC, datetime

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr(*, json: bool, verbose: bool) -> None:
    """Begin to log."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if json else logging.Formatter(_FORMAT))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


class JsonLines(logging.Formatter):
    """A log line as one JSON document."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "text": record.getMessage(),
        }
        # What a line says for programs to read, beside its text.
        fields |= getattr(record, "fields", {})
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json_documents.dumps(fields)
