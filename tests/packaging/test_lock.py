"""The lock file pins what the project requires, and the Makefile reports a missing Python."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.packaging

REPOSITORY = Path(__file__).parents[2]
LOCK = (REPOSITORY / "requirements.lock").read_text()
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def pins() -> dict[str, list[Requirement]]:
    """Return the pins by name. A name has several pins if its version depends on the Python version."""
    pins: dict[str, list[Requirement]] = {}
    for line in re.findall(r"^(\S.*?) \\$", LOCK, re.MULTILINE):
        pin = Requirement(line)
        pins.setdefault(canonicalize_name(pin.name), []).append(pin)
    return pins


def wanted() -> list[Requirement]:
    project = PYPROJECT["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    everything = [
        *project["dependencies"],
        *extras,
        *PYPROJECT["dependency-groups"]["dev"],
        *PYPROJECT["build-system"]["requires"],
    ]
    return [Requirement(line) for line in everything if not line.startswith("tickwheel[")]


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_every_pinned_version_satisfies_its_requirement(requirement: Requirement) -> None:
    pinned = pins()[canonicalize_name(requirement.name)]
    versions = [next(iter(pin.specifier)).version for pin in pinned]
    assert all(requirement.specifier.contains(version) for version in versions)


def test_every_pin_is_exact_and_has_a_hash() -> None:
    blocks = re.split(r"\n(?=\S)", LOCK.strip())
    assert all(re.match(r"\S+==\S+ .*\\\n    --hash=sha256:", block) for block in blocks)


def test_the_lock_names_no_host_and_no_path() -> None:
    assert "/" not in LOCK


def test_pip_check_finds_no_conflict_in_the_environment() -> None:
    checked = subprocess.run((sys.executable, "-m", "pip", "check"), capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout


def test_the_build_backend_in_use_is_the_pinned_one() -> None:
    [pin] = pins()["hatchling"]
    assert pin.specifier.contains(version("hatchling"))


def test_make_without_python_fails_with_the_required_version(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        (tmp_path / name).write_bytes((REPOSITORY / name).read_bytes())
    completed = subprocess.run(("make", "PYTHON=", "demo"), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert completed.returncode != 0
    assert "Python 3.11 or newer" in completed.stderr
    assert not (tmp_path / ".venv").exists()
