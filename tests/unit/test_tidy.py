"""The code is tidy: functions and files are short, and each file, symbol, module and command in a text exists."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.frozen import record

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 350
# Other modules would forget that values can be nested too deeply.
DECODER = "scheduler/tickwheel/runtime/foreign_data.py"
TEST_FILE_LINES_MAX = 450
# The names of files in a text are relative to one of these folders, or to the folder of the text.
FOLDERS = [ROOT, ROOT / "scheduler", ROOT / "scheduler/tickwheel", ROOT / "wheel"]
QUOTATION = re.compile(r"`([^`\n]+)`")
SHELL_BLOCK = re.compile(r"^( *)```(?:sh|console)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"(?<![\w/.<{*-])(?:[\w.-]+/)*[\w-]+\.(?:py|lua|md|proto|toml)\b(?![\w/*])")
# Pages are named without backticks, too.
PAGE_NAME = re.compile(r"(?<![\w/.:-])(?:[\w.-]+/)*[\w-]+\.md\b")
# A symbol and its file, as pages name them.
SYMBOL_OF_FILE = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?` (?:in|of) `([\w./-]+\.py)`")
MODULE_CALL = re.compile(r"\bpython -m ([\w.]+)")
# The first two words after the name of the program, unless they are options, values or placeholders.
COMMAND_CALL = re.compile(r"^(?:\$ )?tickwheel ([a-z][a-z-]*)(?: ([a-z][a-z|-]*))?")
MAKE_CALL = re.compile(r"\bmake ([a-z][a-z-]*)")
MAKE_RULE = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


def tracked_names(*patterns: str) -> list[str]:
    listing = subprocess.check_output(["git", "-C", ROOT, "ls-files", *patterns], text=True)
    return [name for name in listing.splitlines() if (ROOT / name).is_file()]


def tracked(*patterns: str) -> dict[str, str]:
    """Return the text of each tracked file, by its path."""
    return {name: (ROOT / name).read_text() for name in tracked_names(*patterns)}


def is_generated(name: str, text: str) -> bool:
    return "/v1/" in name or "generated" in text.partition("\n")[0].lower()


PRODUCT = {name: text for name, text in tracked("scheduler/*.py", "wheel/*.py").items() if not is_generated(name, text)}


def longer_than(limit: int, files: dict[str, str]) -> dict[str, int]:
    sizes = {name: len(text.splitlines()) for name, text in files.items()}
    return {name: size for name, size in sizes.items() if size > limit}


TEXTS = tracked("*.md", "*.py", "*.lua", "*.proto", "*.toml")
FILE_NAMES = {Path(name).name for name in tracked_names()}


def quotations() -> list[tuple[str, str]]:
    """Return each quotation in backticks, with the name of its page, module or script."""
    return [(name, quotation) for name, text in TEXTS.items() for quotation in QUOTATION.findall(text)]


def calls() -> list[tuple[str, str]]:
    """Return each quotation, and each line of a shell block. The files in these blocks belong to the reader."""
    blocks = [(name, block) for name, text in TEXTS.items() for _, block in SHELL_BLOCK.findall(text)]
    return [*quotations(), *((name, line.strip()) for name, block in blocks for line in block.splitlines())]


def exists(file_name: str, text_name: str) -> bool:
    """A bare name is the name of any tracked file, a name with folders is relative to one of `FOLDERS`."""
    if "/" not in file_name:
        return file_name in FILE_NAMES
    return any((folder / file_name).is_file() for folder in [*FOLDERS, (ROOT / text_name).parent])


def definitions(file_name: str, text_name: str) -> set[str]:
    """Return the names that a file defines: functions, classes, variables and fields, also within classes."""
    folders = [*FOLDERS, (ROOT / text_name).parent]
    paths = [path for folder in folders if (path := folder / file_name).is_file()]
    nodes = [node for path in paths[:1] for node in ast.walk(ast.parse(path.read_text()))]
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    return defined | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def is_our_module(name: str) -> bool:
    paths = [folder / name.replace(".", "/") for folder in FOLDERS]
    return any(path.with_suffix(".py").is_file() or (path / "__main__.py").is_file() for path in paths)


def unknown_command(commands: set[str], command: str, subcommand: str) -> bool:
    """Return whether a command is missing, or the subcommand of a group. Alternatives are separated by ``|``."""
    group = f"tickwheel {command}"
    is_group = any(name.startswith(f"{group} ") for name in commands)
    named = [f"{group} {name}" for name in subcommand.split("|")] if is_group and subcommand else [group]
    return not commands.issuperset(named)


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


def test_only_one_module_decodes_json_and_toml() -> None:
    decoder = re.compile(r"\bjson\.loads?\(|\btomllib\.")
    product = tracked("scheduler/*.py")
    assert [name for name, text in product.items() if decoder.search(text)] == [DECODER]


def test_every_file_that_a_text_names_exists() -> None:
    quoted = [(text_name, name) for text_name, quotation in quotations() for name in FILE_NAME.findall(quotation)]
    pages = [(text_name, name) for text_name, text in TEXTS.items() for name in PAGE_NAME.findall(text)]
    stale = {f"{text_name}: {name}" for text_name, name in [*quoted, *pages] if not exists(name, text_name)}
    assert sorted(stale) == []


def test_every_symbol_that_a_page_names_with_its_file_exists() -> None:
    pages = {name: " ".join(text.split()) for name, text in TEXTS.items() if name.endswith(".md")}
    named = [(page, *found) for page, text in pages.items() for found in SYMBOL_OF_FILE.findall(text)]
    assert len(named) > 10
    stale = {
        f"{page}: {symbol} in {file_name}"
        for page, symbol, file_name in named
        if symbol.rpartition(".")[2] not in definitions(file_name, page)
    }
    assert sorted(stale) == []


def test_every_module_that_a_text_runs_exists() -> None:
    stale = {
        f"{text_name}: python -m {module}"
        for text_name, quotation in calls()
        for module in MODULE_CALL.findall(quotation)
        if not is_our_module(module)
    }
    assert sorted(stale) == []


def test_every_command_that_a_text_names_exists() -> None:
    commands = set(record.recorded("cli"))
    stale = {
        f"{text_name}: tickwheel {command} {subcommand}"
        for text_name, quotation in calls()
        for command, subcommand in COMMAND_CALL.findall(quotation)
        if unknown_command(commands, command, subcommand)
    }
    assert sorted(stale) == []


def test_every_make_target_that_a_text_names_exists() -> None:
    targets = set(MAKE_RULE.findall((ROOT / "Makefile").read_text()))
    stale = {
        f"{text_name}: make {target}"
        for text_name, quotation in calls()
        for target in MAKE_CALL.findall(quotation)
        if target not in targets
    }
    assert sorted(stale) == []
