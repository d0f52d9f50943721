"""The generated modules of the blocking client are current, and have no manual changes."""

import re
import sys
from pathlib import Path

import pytest

from tests.support import generate_blocking
from tickwheel import Queue, aio

pytestmark = pytest.mark.unit

each_module = pytest.mark.parametrize("source", generate_blocking.MODULES, ids=lambda path: path.name)


def check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["generate_blocking.py", "--check"])
    generate_blocking.main()


def test_the_blocking_modules_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    check(monkeypatch)


@each_module
def test_an_edit_of_a_generated_file_is_refused(source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = generate_blocking.MODULES[source]
    edited = tmp_path / result.name
    edited.write_text(result.read_text() + "\n# by hand\n")
    monkeypatch.setitem(generate_blocking.MODULES, source, edited)
    with pytest.raises(SystemExit, match=rf"is out of date: edit {source.name}, then run `make format`$"):
        check(monkeypatch)


@each_module
def test_a_generated_file_names_its_source(source: Path) -> None:
    first = generate_blocking.MODULES[source].read_text().partition("\n")[0]
    assert source.name in first
    assert "make format" in first


@each_module
def test_a_generated_file_neither_awaits_nor_names_asyncio(source: Path) -> None:
    text = generate_blocking.MODULES[source].read_text().partition("\n")[2]
    assert not re.search(r"async|await", text)


def test_a_paragraph_about_asyncio_is_only_in_the_docs_of_the_asyncio_client() -> None:
    assert "asyncio.timeout" in (aio.Queue.dequeue.__doc__ or "")
    assert "asyncio" not in (Queue.dequeue.__doc__ or "")
    assert (aio.Queue.enqueue.__doc__ or "") == Queue.enqueue.__doc__
