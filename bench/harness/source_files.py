"""The files of bench/ and services/ that a measurement consists of."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
# A module that another one imports, or names in the arguments of a program that it starts.
_MODULE: Final = re.compile(r"\b(?:bench|services)(?:\.\w+)+")


def source_files(*modules: str) -> frozenset[str]:
    """Return the paths of the modules, and of all modules that they use, relative to the root of the repository."""
    files: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        path = ROOT / f"{waiting.pop().replace('.', '/')}.py"
        relative = str(path.relative_to(ROOT))
        if relative not in files and path.exists():
            files[relative] = path
            waiting += _used_modules(path)
    return frozenset(files)


@cache
def _used_modules(path: Path) -> tuple[str, ...]:
    return tuple(_names_in(ast.parse(path.read_text())))


def _names_in(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _MODULE.findall(node.value)
