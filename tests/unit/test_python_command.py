"""The command of a child process: which options it has, and that no other module of the product starts Python."""

import ast
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tickwheel
from tickwheel.runtime import python_command
from tickwheel.runtime.python_command import python_module

pytestmark = pytest.mark.unit

ROOT = Path(tickwheel.__file__).parent


@pytest.fixture(autouse=True)
def foreign_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that does not contain Tickwheel."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def set_flags(monkeypatch: pytest.MonkeyPatch, **flags: Any) -> None:
    values = {"ignore_environment": 0, "no_user_site": 0, "safe_path": False} | flags
    monkeypatch.setattr(python_command, "sys", SimpleNamespace(flags=SimpleNamespace(**values), executable="python"))


def test_a_child_imports_nothing_from_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    set_flags(monkeypatch)
    command = python_module("tickwheel.some", "--option", "value")
    assert command == ["python", "-P", "-m", "tickwheel.some", "--option", "value"]


def test_the_command_runs_a_module_although_the_working_directory_has_a_module_of_that_name(
    foreign_folder: Path,
) -> None:
    (foreign_folder / "this.py").write_text("print('planted')")
    done = subprocess.run(python_module("this"), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("The Zen of Python")


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ({"ignore_environment": 1}, ["-E", "-P"]),
        ({"no_user_site": 1}, ["-s", "-P"]),
        # python -I
        ({"ignore_environment": 1, "no_user_site": 1, "safe_path": True}, ["-E", "-s", "-P"]),
    ],
)
def test_a_child_ignores_what_this_program_ignores(
    monkeypatch: pytest.MonkeyPatch, flags: dict[str, Any], options: list[str]
) -> None:
    set_flags(monkeypatch, **flags)
    assert python_module("m") == ["python", *options, "-m", "m"]


@pytest.mark.parametrize(("safe_path", "options"), [(False, []), (True, ["-P"])])
def test_a_checkout_in_the_working_directory_is_found_by_the_child_if_this_program_has_found_it_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, safe_path: bool, options: list[str]
) -> None:
    (tmp_path / "link").symlink_to(ROOT.parent)
    monkeypatch.chdir(tmp_path / "link")
    set_flags(monkeypatch, safe_path=safe_path)
    assert python_module("m") == ["python", *options, "-m", "m"]


def test_a_working_directory_that_was_removed_is_not_imported_from(
    monkeypatch: pytest.MonkeyPatch, foreign_folder: Path
) -> None:
    removed = foreign_folder / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    set_flags(monkeypatch)
    assert python_module("m") == ["python", "-P", "-m", "m"]
    monkeypatch.chdir(foreign_folder)


def test_no_other_module_of_the_product_starts_an_interpreter() -> None:
    modules = {path: ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
    starting = {
        str(path.relative_to(ROOT))
        for path, tree in modules.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in ("executable", "_base_executable"))
        or (isinstance(node, ast.alias) and node.name.split(".")[0] in ("executable", "multiprocessing"))
        or (isinstance(node, ast.alias) and node.name == "ProcessPoolExecutor")
        or (isinstance(node, ast.Attribute) and node.attr == "ProcessPoolExecutor")
    }
    assert starting == {"runtime/python_command.py"}
