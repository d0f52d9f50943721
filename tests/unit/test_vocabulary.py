"""No definition has a name that the vocabulary has replaced (`vocabulary.csv`).

The first column of the table is the scope in which the old name is wrong: `*` for any class, function, method or
parameter; `*.py` for any module; `module NAME` for the top level of one module; otherwise the class or function that
must not define the name. Public names that users rely on keep their old word (`PUBLIC`).
"""

import ast
import csv
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import tickwheel
import timing_wheel

pytestmark = pytest.mark.unit

TABLE = Path(__file__).with_name("vocabulary.csv")
PRODUCT = [Path(tickwheel.__file__).parent, Path(timing_wheel.__file__).parent]
REPOSITORY = Path(__file__).parents[2]
ROOTS = [*PRODUCT, *(REPOSITORY / name for name in ("bench", "services", "examples", "tests"))]
# Parameters that users can pass by name, and an attribute that they can read.
PUBLIC = {("VirtualClock.advance", "each"), ("audit", "core"), ("QueueConfig", "stamp")}

Definition = tuple[str, str]


@cache
def replaced() -> dict[Definition, str]:
    """Return the new name of each old name, by the scope and the old name."""
    with TABLE.open(newline="") as table:
        return {(row["inside"], row["old"]): row["new"] for row in csv.DictReader(table)}


def definitions(file: Path) -> Iterator[Definition]:
    """Yield the module itself, and every definition and parameter in it: the scope and the name."""
    yield "*.py", file.stem
    yield from definitions_in(ast.parse(file.read_text()), f"module {file.stem}", "")


def definitions_in(node: ast.AST, inside: str, path: str) -> Iterator[Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield inside, child.name
            below = f"{path}{child.name}"
            yield from definitions_in(child, below, f"{below}.")
        elif isinstance(child, ast.arg):
            yield inside, child.arg
        elif not isinstance(child, ast.Lambda):
            yield from definitions_in(child, inside, path)


def old_names(names: Iterable[Definition]) -> list[str]:
    """Return one line for each definition with an old name."""
    table = replaced()
    lines = []
    for inside, name in names:
        new = table.get((inside, name)) or (table.get(("*", name)) if inside != "*.py" else None)
        if new is not None and (inside, name) not in PUBLIC:
            lines.append(f"{inside}: {name} is now {new}")
    return lines


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)
def test_no_definition_has_a_replaced_name(root: Path) -> None:
    files = [file for file in root.rglob("*.py") if file.parent.name != "v1"]
    lines = [f"{file.relative_to(root)}: {line}" for file in files for line in old_names(definitions(file))]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def told(): ...", "module sample: told is now"),
        ("def f(*, asked=1): ...", "f: asked is now"),
        ("def test_f(given): ...", "test_f: given is now"),
        ("class A:\n    async def bury(self): ...", "A: bury is now settle_after_exit"),
        ("class Told: ...", "module sample: Told is now"),
        ("class ClientSession:\n    def repeat(self): ...", "ClientSession: repeat is now pin_sequence"),
    ],
)
def test_an_old_name_is_noticed(source: str, line: str, tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(source)
    [notice] = old_names(definitions(file))
    assert notice.startswith(line)


def test_an_old_module_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "seldom.py"
    file.touch()
    assert old_names(definitions(file)) == ["*.py: seldom is now log_throttle"]
