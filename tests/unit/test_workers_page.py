"""The page about workers names every field that middleware and tests read."""

import dataclasses
import re
from pathlib import Path

import pytest

from tickwheel.tasks import Outcome, Run

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[2] / "docs" / "workers.md"


def fields_of_section(title: str) -> list[str]:
    """Return the names in the first column of the first table of a section."""
    section = PAGE.read_text().split(f" {title}\n", 1)[1].split("\n#", 1)[0]
    return re.findall(r"^\| `(\w+)", section, re.MULTILINE)


@pytest.mark.parametrize(("title", "kind"), [("Outcomes", Outcome), ("Runs", Run)])
def test_the_table_has_the_fields_of_the_class(title: str, kind: type) -> None:
    assert fields_of_section(title) == [field.name for field in dataclasses.fields(kind) if field.name[0] != "_"]
