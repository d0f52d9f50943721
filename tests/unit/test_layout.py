"""The layout of the product: few modules at the root, packages of limited size, no import cycles."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

import tickwheel
import timing_wheel

pytestmark = pytest.mark.unit

ROOT = Path(tickwheel.__file__).parent
# The public modules that must be at the root, and modules that all packages use.
ROOT_MODULES_MAX = 8
PACKAGE_MODULES_MAX = 32
# A line of the list in a package's docstring: a module or a subpackage, at least two spaces, its description.
LISTED = re.compile(r"^ *(\w+)(?:\.py|/)?  +\S", re.MULTILINE)


def modules(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.py") if file.name != "__init__.py")


def packages() -> Iterator[Path]:
    return (file.parent for file in ROOT.rglob("__init__.py"))


def test_the_root_holds_few_modules() -> None:
    assert len(modules(ROOT)) <= ROOT_MODULES_MAX, modules(ROOT)


def test_no_package_holds_more_modules_than_a_reader_can_survey() -> None:
    sizes = {str(package.relative_to(ROOT)): len(modules(package)) for package in packages()}
    assert {name: size for name, size in sizes.items() if size > PACKAGE_MODULES_MAX} == {}


def test_every_folder_with_modules_is_a_package() -> None:
    assert {file.parent for file in ROOT.rglob("*.py")} == set(packages())


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions count, imports for type checkers do not."""
    graph = grimp.build_graph("tickwheel", "timing_wheel", exclude_type_checking_imports=True, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    # Repeatedly remove the modules without imports. The remaining modules are in a cycle, or import one that is.
    while leaves := {module for module, imports in imported.items() if not imports}:
        imported = {module: imports - leaves for module, imports in imported.items() if module not in leaves}

    assert sorted(imported) == []


@pytest.mark.parametrize("folder", [package for package in packages() if modules(package)], ids=lambda path: path.name)
def test_a_package_opening_describes_the_package(folder: Path) -> None:
    assert (folder / "__init__.py").read_text().startswith('"""') or folder.name == "v1"


DESCRIBED = [*(package for package in packages() if package.name != "v1"), Path(timing_wheel.__file__).parent]


@pytest.mark.parametrize("folder", DESCRIBED, ids=lambda path: path.name)
def test_a_package_opening_lists_the_modules_of_the_package(folder: Path) -> None:
    listed = set(LISTED.findall(ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""))
    subpackages = {opening.parent.name for opening in folder.glob("*/__init__.py")}
    data_folders = {path.name for path in folder.iterdir() if path.is_dir()}

    assert sorted({*modules(folder), *subpackages} - listed) == []
    assert sorted(listed - {*modules(folder), *data_folders}) == []
