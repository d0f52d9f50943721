"""The log format of long-running commands: text lines or JSON documents, on stderr."""

import json as json_documents
import logging
import sys
from datetime import UTC, datetime

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr(*, json: bool, verbose: bool) -> None:
    """Configure logging: INFO and above, or DEBUG and above if ``verbose``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if json else logging.Formatter(_FORMAT))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


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
