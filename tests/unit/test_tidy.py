"""The code is tidy: functions and files are short, and each file and make target that a text names exists."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 350
TEST_FILE_LINES_MAX = 450
# The names of files in a text are relative to one of these folders, or to the folder of the text.
FOLDERS = [ROOT, ROOT / "scheduler", ROOT / "scheduler/tickwheel", ROOT / "wheel"]
QUOTATION = re.compile(r"`([^`\n]+)`")
FILE_NAME = re.compile(r"(?:[\w.-]+/)+[\w-]+\.(?:py|lua)\b")
MAKE_CALL = re.compile(r"\bmake ([a-z][a-z-]*)")
MAKE_RULE = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


def tracked(*patterns: str) -> dict[str, str]:
    """Return the text of each tracked file, by its path."""
    listing = subprocess.check_output(["git", "-C", ROOT, "ls-files", *patterns], text=True)
    return {name: (ROOT / name).read_text() for name in listing.splitlines() if (ROOT / name).is_file()}


def is_generated(name: str, text: str) -> bool:
    return "/v1/" in name or "generated" in text.partition("\n")[0].lower()


PRODUCT = {name: text for name, text in tracked("scheduler/*.py", "wheel/*.py").items() if not is_generated(name, text)}


def longer_than(limit: int, files: dict[str, str]) -> dict[str, int]:
    sizes = {name: len(text.splitlines()) for name, text in files.items()}
    return {name: size for name, size in sizes.items() if size > limit}


def quotations() -> list[tuple[str, str]]:
    """Return each quotation in backticks, with the name of its page, module or script."""
    files = tracked("*.md", "*.py", "*.lua")
    return [(name, quotation) for name, text in files.items() for quotation in QUOTATION.findall(text)]


def exists(file_name: str, text_name: str) -> bool:
    return any((folder / file_name).is_file() for folder in [*FOLDERS, (ROOT / text_name).parent])


def test_no_function_of_the_product_is_long() -> None:
    sizes = {
        f"{name}: {node.name}": node.end_lineno - node.lineno + 1
        for name, text in PRODUCT.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    }
    assert {name: size for name, size in sizes.items() if size > FUNCTION_LINES_MAX} == {}


def test_no_file_of_the_product_is_long() -> None:
    assert longer_than(FILE_LINES_MAX, PRODUCT) == {}


def test_no_file_of_the_tests_is_long() -> None:
    assert longer_than(TEST_FILE_LINES_MAX, tracked("tests/*.py")) == {}


def test_every_file_that_a_text_names_exists() -> None:
    stale = {
        f"{text_name}: {file_name}"
        for text_name, quotation in quotations()
        for file_name in FILE_NAME.findall(quotation)
        if not exists(file_name, text_name)
    }
    assert sorted(stale) == []


def test_every_make_target_that_a_text_names_exists() -> None:
    targets = set(MAKE_RULE.findall((ROOT / "Makefile").read_text()))
    stale = {
        f"{text_name}: make {target}"
        for text_name, quotation in quotations()
        for target in MAKE_CALL.findall(quotation)
        if target not in targets
    }
    assert sorted(stale) == []
