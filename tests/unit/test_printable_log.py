"""Text logs: whatever a record contains, it can neither add a line to the log nor control the terminal."""

import ast
import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

import tickwheel
from tickwheel.cli.load_progress import print_report
from tickwheel.demo.display import PlainLines
from tickwheel.runtime.log_format import JsonLines, TextLines, log_to_stderr, print_error, print_line, print_uncaught
from tickwheel.runtime.text_escape import cut_middle, indent_lines

pytestmark = pytest.mark.unit

PACKAGE = Path(tickwheel.__file__).parent
FORGED = "2030-01-01 00:00:00,000 INFO tickwheel: FORGED"
HOSTILE = f"x\n{FORGED}\r\x1b[2J\x9b2J\x85\u2028\u2029\u202e\u2066\ud800\0\x7f"
texts = st.text(st.characters())


def format_failure(name: str, text: str, error: str) -> str:
    """Return the lines of a record with a traceback, of which all parts are given."""
    try:
        raise ValueError(error)
    except ValueError:
        record = logging.LogRecord(name, logging.ERROR, "", 0, "%s failed", (text,), sys.exc_info(), sinfo=error)
    return TextLines("%(asctime)s %(levelname)s %(name)s: %(message)s").format(record)


@given(texts, texts, texts)
@example(HOSTILE, HOSTILE, HOSTILE)
def test_a_record_is_one_printable_line_and_its_traceback_is_printable_and_indented(
    name: str, text: str, error: str
) -> None:
    first, *rest = format_failure(name, text, error).split("\n")
    assert all(line.isprintable() for line in (first, *rest))
    assert all(line.startswith("  ") for line in rest)
    assert first.endswith(" failed")


@given(st.text(st.characters(codec="utf-8").filter(str.isprintable)))
def test_printable_text_is_logged_as_it_is(text: str) -> None:
    assert f": {text} failed\n" in format_failure("tickwheel", text, "")


@given(texts)
@example(HOSTILE)
def test_the_error_line_of_a_command_is_printable(text: str) -> None:
    first, *rest = indent_lines(f"tickwheel: {text}").split("\n")
    assert all(line.isprintable() for line in (first, *rest))
    assert all(line.startswith("  ") for line in rest)


@given(texts)
@example(HOSTILE)
def test_a_line_on_stderr_is_printable(text: str) -> None:
    written = io.StringIO()
    with redirect_stderr(written):
        print_line(text, json=False)
        print_error(ValueError(text), json=False)
    lines = written.getvalue().removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    for first in (0, len(lines) // 2):
        assert all(line.startswith("  ") for line in lines[first + 1 : first + len(lines) // 2])


def test_texts_of_servers_in_the_output_of_a_load_and_of_the_demo_are_printable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = {"counts": {}, "seconds": 1.0, "ended": "by time", "calls": {}, "queues": {}, "troubles": [HOSTILE]}
    run |= {"errors": {"Unavailable": {"count": 1, "first": HOSTILE}}, "harness": {"was_the_bottleneck": False}}
    print_report({"run": run, "capacity": {"hours": []}})
    PlainLines().print_line(HOSTILE)
    lines = capsys.readouterr().out.split("\n")
    assert sum("FORGED" in line for line in lines) == 3
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines("%(message)s")])
def test_long_values_of_a_record_are_cut_and_keep_their_ends(formatter: logging.Formatter) -> None:
    long = f"begin{'x' * 1_000_000}end"
    try:
        raise ValueError(long)
    except ValueError:
        record = logging.LogRecord("tickwheel", logging.ERROR, "", 0, "%s", (long,), sys.exc_info(), sinfo=long)
    record.fields = {"reason": long, "ids": [long] * 3, "count": 3, "names": ["a", "b"]}
    line = formatter.format(record)
    assert len(line) < 200_000
    assert "begin" in line
    assert "end" in line
    if isinstance(formatter, JsonLines):
        fields = json.loads(line)
        assert all(len(fields[name]) < 8_300 for name in ("text", "reason", "ids"))
        assert all("bytes are cut here" in fields[name] for name in ("text", "reason", "ids", "traceback"))
        assert fields["text"].startswith("begin")
        assert fields["text"].endswith("end")
        assert (fields["count"], fields["names"]) == (3, ["a", "b"])


@given(st.text(st.characters()), st.integers(20, 200))
def test_a_cut_text_has_at_most_its_maximum_and_the_note(text: str, maximum: int) -> None:
    cut = cut_middle(text, maximum)
    assert len(cut.encode(errors="backslashreplace")) <= maximum + 50
    if len(text.encode(errors="backslashreplace")) <= maximum:
        assert cut == text


def capture_stderr(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return what a program prints on stderr. The settings of the test's process are restored after the test.

    This is no fixture, because pytest configures stderr and the log again between the fixtures and the test.
    """
    stderr = io.StringIO()
    root = logging.getLogger()
    monkeypatch.setattr(sys, "stderr", stderr)
    # `basicConfig` does nothing if there is a handler, and pytest has added its own.
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    for module, hook in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        monkeypatch.setattr(module, hook, getattr(module, hook))
    return stderr


def fail_in_a_thread() -> None:
    def fail() -> None:
        raise ValueError(HOSTILE)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def fail_in_a_finalizer() -> None:
    class Fragile:
        def __del__(self) -> None:
            raise ValueError(HOSTILE)

        def __repr__(self) -> str:
            return HOSTILE

    Fragile()


def fail_in_the_program() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        sys.excepthook(*sys.exc_info())


@pytest.mark.parametrize("fail", [fail_in_a_thread, fail_in_a_finalizer, fail_in_the_program])
@pytest.mark.parametrize("with_log", [True, False])
def test_an_exception_that_nothing_catches_is_printable(
    monkeypatch: pytest.MonkeyPatch, fail: Callable[[], None], with_log: bool
) -> None:
    stderr = capture_stderr(monkeypatch)
    if with_log:
        log_to_stderr()
    else:
        print_uncaught(json=False)
    fail()
    first, *rest = stderr.getvalue().removesuffix("\n").split("\n")
    assert " CRITICAL tickwheel: " in first
    assert any("ValueError" in line for line in rest)
    assert all(line.isprintable() for line in (first, *rest))
    assert all(line.startswith("  ") for line in rest)


_PROGRAM_WITH_A_BUG = f"""
from tickwheel.cli.app import app, main

@app.command("fail")
def fail() -> None:
    raise ValueError({HOSTILE!a})

main()
"""


def test_a_bug_of_a_command_is_printable() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM_WITH_A_BUG, "fail"], capture_output=True, timeout=60, check=False
    )
    first, *rest = done.stderr.decode().removesuffix("\n").split("\n")
    assert done.returncode == 1
    assert first.endswith("CRITICAL tickwheel: unexpected error")
    assert all(line.isprintable() and line.startswith("  ") for line in rest)


def test_a_program_that_configures_its_log_escapes_the_records_of_every_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = capture_stderr(monkeypatch)
    log_to_stderr()
    logging.getLogger("another.library").warning("lost %s", HOSTILE)
    assert stderr.getvalue().count("\n") == 1
    assert stderr.getvalue().rstrip("\n").isprintable()


def test_only_one_module_configures_logging() -> None:
    """A handler with another formatter would print records as they are."""
    configure = {"basicConfig", "StreamHandler", "FileHandler", "setFormatter", "dictConfig", "fileConfig", "Formatter"}
    found = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in configure)
        or (isinstance(node, ast.alias) and node.name in {*configure, "logging.config", "logging.handlers"})
    }
    assert found == {"runtime/log_format.py"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help{}"],
        ["command{}"],
        ["queue", "--json{}"],
        ["queue", "command{}"],
        ["counts", "orders", "more{}"],
        ["counts", "--timeout", "{}"],
    ],
)
def test_an_error_of_the_command_line_quotes_no_control_characters(arguments: list[str]) -> None:
    hostile = HOSTILE.translate({0: None, 0xD800: None})
    # In a process of its own, because the progress bar of another test could write to the same output.
    command = [sys.executable, "-m", "tickwheel", *(argument.format(hostile) for argument in arguments)]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert result.returncode == 2
    assert "FORGED" in result.stderr
    assert all(line.isprintable() for line in result.stderr.split("\n"))
    assert not any(line.startswith(FORGED) for line in result.stderr.split("\n"))
