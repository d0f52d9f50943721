"""Log lines without records: they are the same lines, and other handlers still receive records."""

import io
import logging
import re
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from tickwheel.runtime import log_format
from tickwheel.runtime.log_batch import LineBatch, log_lines
from tickwheel.runtime.log_format import JsonLines, StderrHandler, TextLines

pytestmark = pytest.mark.unit

HOSTILE = "x\n2030-01-01 00:00:00,000 INFO tickwheel: FORGED\r\x1b[2J\u2028\ud800\0"
texts = st.text(st.characters())


def batch(*lines: tuple[str, dict[str, Any]]) -> LineBatch[tuple[str, dict[str, Any]]]:
    return LineBatch(lines, itemgetter(0), itemgetter(1))


def format_record(formatter: logging.Formatter, created: float, text: str, fields: dict[str, Any]) -> str:
    record = logging.LogRecord("tickwheel.worker", logging.INFO, "", 0, "%s", (text,), None)
    record.created, record.msecs, record.fields = created, int(created % 1 * 1_000), fields
    return formatter.format(record)


@pytest.mark.parametrize("formatter", [TextLines(log_format._FORMAT), JsonLines()], ids=["text", "json"])
@given(text=texts, name=texts, created=st.floats(0, 4e9))
@example(text=HOSTILE, name=HOSTILE, created=1e9 + 0.0295)
@example(text="x" * 100_000, name="y" * 100_000, created=0)
def test_a_line_without_a_record_is_the_line_of_a_record(
    formatter: TextLines | JsonLines, text: str, name: str, created: float
) -> None:
    fields = {"event": "task received", "id": name, "attempt": 1}
    [line] = formatter.format_lines(created, "INFO", "tickwheel.worker", batch((text, fields)))
    assert line == format_record(formatter, created, text, fields) + "\n"


class Pieces(io.StringIO):
    """Records each call of `write`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def write(self, text: str) -> int:
        self.calls.append(text)
        return len(text)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger of its own: no handler of the test run receives its records."""
    logger = logging.Logger("tickwheel.worker", logging.INFO)
    logger.propagate = False
    yield logger
    logger.handlers.clear()


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch, logger: logging.Logger) -> Pieces:
    stderr = Pieces()
    monkeypatch.setattr("sys.stderr", stderr)
    logger.addHandler(StderrHandler(TextLines("%(levelname)s %(message)s")))
    return stderr


def test_lines_are_written_in_few_calls_that_end_with_a_line(logger: logging.Logger, stderr: Pieces) -> None:
    lines = [f"{n} {'x' * 100}" for n in range(100)]
    log_lines(logger, logging.INFO, batch(*((line, {}) for line in lines)))
    assert "".join(stderr.calls) == "".join(f"INFO {line}\n" for line in lines)
    assert len(stderr.calls) < 5
    assert all(len(call) < 4_096 and call.endswith("\n") for call in stderr.calls)


def test_no_record_is_made_if_the_log_on_stderr_is_the_only_handler(
    logger: logging.Logger, stderr: Pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logger, "makeRecord", lambda *args, **more: pytest.fail("a record was made"))
    log_lines(logger, logging.INFO, batch(("one", {}), ("two", {})))
    assert stderr.calls == ["INFO one\nINFO two\n"]


class Records(logging.Handler):
    """Keeps records, as a handler of an app does."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_another_handler_receives_a_record_with_the_fields_of_each_line(logger: logging.Logger, stderr: Pieces) -> None:
    handler = Records()
    logger.addHandler(handler)
    log_lines(logger, logging.INFO, batch(("one", {"event": "first"}), ("two %s", {"event": "second"})))
    assert [record.getMessage() for record in handler.records] == ["one", "two %s"]
    assert [record.fields["event"] for record in handler.records] == ["first", "second"]  # type: ignore[attr-defined]
    assert "".join(stderr.calls) == "INFO one\nINFO two %s\n"


def test_a_filter_sees_each_line(logger: logging.Logger, stderr: Pieces) -> None:
    logger.addFilter(lambda record: not re.search("secret", record.getMessage()))
    log_lines(logger, logging.INFO, batch(("one", {}), ("secret", {})))
    assert "".join(stderr.calls) == "INFO one\n"


def test_lines_below_the_level_are_not_logged(logger: logging.Logger, stderr: Pieces) -> None:
    logger.setLevel(logging.WARNING)
    log_lines(logger, logging.INFO, batch(("one", {})))
    assert stderr.calls == []


def test_a_log_that_cannot_be_written_raises_no_error(
    logger: logging.Logger, stderr: Pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(text: str) -> int:
        raise OSError("no space left on device")

    monkeypatch.setattr(logging, "raiseExceptions", False)
    monkeypatch.setattr(stderr, "write", refuse)
    log_lines(logger, logging.INFO, batch(("one", {})))
