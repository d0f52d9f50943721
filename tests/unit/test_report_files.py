"""The files of a report: which paths are refused, and that a run replaces only files that are reports."""

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tickwheel.errors import InvalidArgument
from tickwheel.load.report.files import check_files, write_files
from tickwheel.runtime.private_file import UnsafePath

pytestmark = pytest.mark.unit

DOCUMENT: dict[str, Any] = {"tickwheel": "1.0", "scenario": {"name": "q"}, "run": None, "capacity": {}}


def test_a_run_replaces_the_files_of_an_earlier_run(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_files(page, "a long page", DOCUMENT)
    check_files(page)
    write_files(page, "a page", DOCUMENT | {"run": {"é": 1}})
    assert page.read_text(encoding="utf-8") == "a page"
    assert json.loads((tmp_path / "page.json").read_text()) == DOCUMENT | {"run": {"é": 1}}


@contextmanager
def no_file_grows_beyond(size: int) -> Iterator[None]:
    """Refuse to write beyond this size to a file, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("length", [1_000, 10], ids=["page", "document"])
def test_a_full_disk_leaves_both_files_of_the_earlier_run(tmp_path: Path, length: int) -> None:
    page = tmp_path / "page.html"
    write_files(page, "a page", DOCUMENT)
    later = DOCUMENT | {"run": {"text": "x" * 1_000}}
    with no_file_grows_beyond(500), pytest.raises(OSError, match="too large"):
        write_files(page, "x" * length, later)
    assert page.read_text() == "a page"
    assert json.loads((tmp_path / "page.json").read_text()) == DOCUMENT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "page.json"]
    write_files(page, "a later page", later)
    assert page.read_text() == "a later page"


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_a_run_keeps_the_permissions_of_the_files(tmp_path: Path, mode: int) -> None:
    page = tmp_path / "page.html"
    write_files(page, "a page", DOCUMENT)
    for path in tmp_path.iterdir():
        path.chmod(mode)
    write_files(page, "a later page", DOCUMENT)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}


def test_a_check_leaves_no_file_behind(tmp_path: Path) -> None:
    check_files(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_other_users_may_read_the_files_and_not_change_them(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_files(tmp_path / "page.html", "a page", DOCUMENT)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}


@pytest.mark.parametrize("name", ["page.html", "page.json"])
@pytest.mark.parametrize("is_symbolic", [True, False])
def test_no_file_is_changed_through_a_link(tmp_path: Path, name: str, is_symbolic: bool) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    link = tmp_path / "reports" / name
    link.parent.mkdir()
    if is_symbolic:
        link.symlink_to(precious)
    else:
        link.hardlink_to(precious)
    for refused in (check_files, lambda page: write_files(page, "a page", DOCUMENT)):
        with pytest.raises(UnsafePath, match=rf"{name} is a (symbolic|hard) link"):
            refused(tmp_path / "reports" / "page.html")
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("content", ['{"name": "package"}', "[]", "no JSON", "[" * 100_000, json.dumps({"run": 1})])
def test_a_json_file_that_is_no_report_is_not_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "package.json").write_text(content)
    for refused in (check_files, lambda page: write_files(page, "a page", DOCUMENT)):
        with pytest.raises(InvalidArgument, match=r"package\.json, which exists and is no report"):
            refused(tmp_path / "package.html")
    assert (tmp_path / "package.json").read_text() == content
    assert not (tmp_path / "package.html").exists()


def test_an_empty_json_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "page.json").touch(0o644)
    write_files(tmp_path / "page.html", "a page", DOCUMENT)
    assert json.loads((tmp_path / "page.json").read_text()) == DOCUMENT


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.json", "must name the HTML page"),
        ("page.JSON", "must name the HTML page"),
        ("folder", "is a folder"),
        (".", "is a folder"),
        ("nowhere/page.html", "nowhere does not exist"),
    ],
)
def test_a_path_that_cannot_be_that_of_a_page_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidArgument, match=text):
        check_files(tmp_path / name)
