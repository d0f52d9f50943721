"""The blocking `Queue` and `Message` are what the asyncio source gives, and nobody edits them by hand."""

import sys
from pathlib import Path

import pytest

from tests.support import generate_blocking
from tickwheel import Queue, aio

pytestmark = pytest.mark.unit


def check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["generate_blocking.py", "--check"])
    generate_blocking.main()


def test_the_blocking_queue_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    check(monkeypatch)


def test_an_edit_of_the_generated_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    edited = tmp_path / "blocking_queue.py"
    edited.write_text(generate_blocking.RESULT.read_text() + "\n# by hand\n")
    monkeypatch.setattr(generate_blocking, "RESULT", edited)
    with pytest.raises(SystemExit, match=r"is out of date: edit asyncio_queue\.py, then run `make format`$"):
        check(monkeypatch)


def test_the_generated_file_says_what_it_comes_from() -> None:
    first = generate_blocking.RESULT.read_text().partition("\n")[0]
    assert generate_blocking.SOURCE.name in first
    assert "make format" in first


def test_a_paragraph_about_asyncio_is_in_the_docs_of_that_client_alone() -> None:
    assert "asyncio.timeout" in (aio.Queue.dequeue.__doc__ or "")
    assert "asyncio" not in (Queue.dequeue.__doc__ or "")
    assert (aio.Queue.enqueue.__doc__ or "") == Queue.enqueue.__doc__
