"""The extras: the errors, the README and pyproject.toml name the same ones."""

import re
import tomllib
from pathlib import Path

import pytest

from tickwheel.runtime.extras import describe_install

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "examples/README.md"]


def test_the_error_about_a_missing_package_names_both_installs_and_the_section_of_the_readme() -> None:
    text = describe_install("grpc")
    assert "pip install '.[grpc]'" in text
    assert "pip install 'FILE.whl[grpc]'" in text
    assert 'section "Install" of the README' in text
    assert "\n## Install\n" in README


def test_every_extra_that_an_error_names_exists() -> None:
    sources = (path.read_text() for path in (ROOT / "scheduler").rglob("*.py"))
    named = {extra for source in sources for extra in re.findall(r"describe_install\('(\w+)'\)", source)}
    assert named
    assert named <= EXTRAS


def test_the_readme_lists_every_extra() -> None:
    table = README.partition("| extra | needed for |")[2].partition("\n\n")[0]
    assert {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)} >= EXTRAS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_installs_from_an_index_that_does_not_have_the_package(page: Path) -> None:
    assert re.findall(r"(?:pip install|install) '?tickwheel(?:\[[a-z,]+\])?'?(?![-\w.])", page.read_text()) == []
