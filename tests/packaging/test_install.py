"""The package as users install it: from a wheel, from an sdist, and as an editable install.

Everything happens offline in a copy of the tracked files. Each new environment links the dependencies of the
environment that runs the tests. PyPA's `wheel` is copied instead, so that the tests detect damage to it, and the
damage does not reach the other environment.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from tickwheel.demo.flights import SAMPLE

pytestmark = pytest.mark.packaging

REPOSITORY = Path(__file__).parents[2]
OURS = ("tickwheel", "timing_wheel")
ON_GITHUB = "https://github.com/tickwheel/tickwheel"
DIST_INFO = f"tickwheel-{version('tickwheel')}.dist-info"


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return its output. If the command fails, fail the test with the output."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=100)
    if done.returncode:
        pytest.fail(f"{command} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in a folder, except compiled caches."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def lua_files() -> set[str]:
    return {path.name for path in (REPOSITORY / "lua").glob("*.lua")}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked and untracked files of the working tree, without ignored files."""
    copy = tmp_path_factory.mktemp("checkout")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=REPOSITORY)
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def built(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An sdist, and a wheel built straight from the tree."""
    out = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", out)
    run(*build, "--sdist", "--wheel", checkout, cwd=out)
    return {"sdist": next(out.glob("*.tar.gz")), "wheel": next(out.glob("*.whl"))}


@dataclass(frozen=True)
class Installation:
    """A new environment after the install, and the entries of its site-packages before it."""

    kind: str
    python: Path
    site_packages: Path
    entries_before: set[str]
    pypa_wheel_before: dict[str, str]
    elsewhere: Path

    def evaluate(self, module: str, expression: str) -> object:
        """Import a module in the environment, outside any source tree, and return the value of the expression."""
        program = f"import json, {module}; print(json.dumps({expression}))"
        return json.loads(run(self.python, "-I", "-c", program, cwd=self.elsewhere))


@pytest.fixture(scope="module", params=["wheel", "sdist", "editable"])
def installation(
    request: pytest.FixtureRequest,
    checkout: Path,
    built: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Installation:
    kind: str = request.param
    root = tmp_path_factory.mktemp(f"installed_{kind}")
    venv.create(root, symlinks=True)
    python = root / "bin" / "python"
    site_packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(root)}))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name.startswith((*OURS, "_tickwheel")):
            continue
        if entry.name == "wheel" or entry.name.startswith("wheel-"):
            shutil.copytree(entry, site_packages / entry.name)
        else:
            (site_packages / entry.name).symlink_to(entry)
    entries_before = {entry.name for entry in site_packages.iterdir()}
    pypa_wheel_before = digests(site_packages / "wheel")

    pip = (python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation")
    wanted = ("--editable", checkout) if kind == "editable" else (built[kind],)
    run(*pip, *wanted, cwd=root)
    return Installation(kind, python, site_packages, entries_before, pypa_wheel_before, root)


def test_the_wheel_holds_two_packages_and_nothing_else_at_the_top(built: dict[str, Path]) -> None:
    names = zipfile.ZipFile(built["wheel"]).namelist()
    assert {name.split("/")[0] for name in names} == {*OURS, DIST_INFO}


def test_the_wheel_holds_every_module_and_every_lua_file(built: dict[str, Path]) -> None:
    names = set(zipfile.ZipFile(built["wheel"]).namelist())
    modules = {
        str(path.relative_to(REPOSITORY / root))
        for root in ("scheduler", "wheel")
        for path in (REPOSITORY / root).rglob("*.py")
    }
    expected = modules | {f"tickwheel/lua/{name}" for name in lua_files()} | {"tickwheel/py.typed"}
    assert lua_files()
    assert expected <= names


def test_the_wheel_contains_the_sample_data_of_the_demo(built: dict[str, Path]) -> None:
    archive = zipfile.ZipFile(built["wheel"])
    [name] = [name for name in archive.namelist() if name.endswith(".csv")]
    assert name == f"tickwheel/demo/data/{SAMPLE}"
    assert archive.read(name) == (REPOSITORY / "examples" / SAMPLE).read_bytes()


def test_the_wheel_contains_the_proto_files_with_their_import_paths(built: dict[str, Path]) -> None:
    archive = zipfile.ZipFile(built["wheel"])
    files = {str(path.relative_to(REPOSITORY / "proto")): path for path in (REPOSITORY / "proto").rglob("*.proto")}
    assert len(files) == 3
    assert {name for name in archive.namelist() if name.endswith((".proto", ".binpb", "buf.yaml"))} == files.keys()
    assert all(archive.read(name) == path.read_bytes() for name, path in files.items())


def test_the_demo_finds_its_sample_data_in_every_installation(installation: Installation) -> None:
    flights = "tickwheel.demo.flights"
    assert installation.evaluate(flights, f"len({flights}.read({flights}.sample()))") == 930


def test_every_installation_has_the_load_scenarios_and_the_report_template(installation: Installation) -> None:
    source = "tickwheel.load.scenario.source"
    assert installation.evaluate(source, f"sorted({source}.shipped_scenarios())") == [
        "media-encoding",
        "order-timeouts",
        "timestone",
    ]
    assert installation.evaluate("tickwheel.load.report.report", "bool(tickwheel.load.report.report.load_template())")


def test_the_metadata_contain_the_readme_and_the_licence(built: dict[str, Path]) -> None:
    metadata = zipfile.ZipFile(built["wheel"]).read(f"{DIST_INFO}/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert (REPOSITORY / "README.md").read_text() in metadata.replace(f"]({ON_GITHUB}/blob/main/", "](")
    fields = re.findall(r"^(Author|Project-URL): (.+)$", metadata, re.MULTILINE)
    assert {name for name, _ in fields} == {"Author", "Project-URL"}
    assert {value.partition(",")[0] for name, value in fields if name == "Project-URL"} == {
        "Changelog",
        "Documentation",
        "Homepage",
        "Issues",
    }


def test_the_links_of_the_readme_work_on_a_package_index(built: dict[str, Path]) -> None:
    metadata = zipfile.ZipFile(built["wheel"]).read(f"{DIST_INFO}/METADATA").decode()
    links = set(re.findall(r"\]\(([^)\s]+)\)", metadata))
    assert f"{ON_GITHUB}/blob/main/docs/guide.md" in links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    targets = {link.partition("/blob/main/")[2].partition("#")[0] for link in links if link.startswith(ON_GITHUB)}
    assert [target for target in targets if not (REPOSITORY / target).exists()] == []


def test_the_sdist_and_the_tree_build_identical_wheels(built: dict[str, Path], tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", tmp_path, built["sdist"], cwd=tmp_path)
    assert next(tmp_path.glob("*.whl")).read_bytes() == built["wheel"].read_bytes()


def test_the_sdist_contains_the_licence_documents_and_tests(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        top = {name.split("/")[1] for name in archive.getnames()}
    assert top >= {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "Makefile", "tests"}
    assert not top & {".git", ".venv", ".ci"}


@pytest.mark.parametrize("module", OURS)
def test_both_packages_import_from_another_directory(installation: Installation, checkout: Path, module: str) -> None:
    source = checkout / ("scheduler" if module == "tickwheel" else "wheel")
    home = source if installation.kind == "editable" else installation.site_packages
    assert installation.evaluate(module, f"{module}.__file__") == str(home / module / "__init__.py")


def test_version_matches_the_metadata_of_the_distribution(installation: Installation) -> None:
    assert installation.evaluate("tickwheel", "tickwheel.__version__") == version("tickwheel")


def test_every_lua_script_loads_in_every_installation(installation: Installation) -> None:
    scripts = "tickwheel.storage.scripts"
    loaded = installation.evaluate(scripts, f"[{scripts}.load(name).name for name in {scripts}.names()]")
    operations = {name.removesuffix(".lua") for name in lua_files() if not name.startswith("_")}
    assert loaded == sorted(operations)


def test_the_install_does_not_change_the_wheel_package_of_pypa(installation: Installation) -> None:
    module = installation.site_packages / "wheel"
    assert digests(module) == installation.pypa_wheel_before
    assert installation.evaluate("wheel", "[wheel.__file__, wheel.__version__]") == [
        str(module / "__init__.py"),
        version("wheel"),
    ]


def test_the_install_adds_only_the_two_packages_and_their_metadata(installation: Installation) -> None:
    entries = {entry.name for entry in installation.site_packages.iterdir()} - {"__pycache__"}
    added = {"_tickwheel.pth"} if installation.kind == "editable" else set(OURS)
    assert entries - installation.entries_before == {*added, DIST_INFO}


def test_the_installed_command_prints_its_help(installation: Installation) -> None:
    command = installation.python.with_name("tickwheel")
    assert "demo" in run(command, "--help", cwd=installation.elsewhere)
