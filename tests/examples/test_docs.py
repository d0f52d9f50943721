"""The code of the documentation runs: the Python of a page as one program, the commands in a shell."""

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tickwheel.load.scenario import scenario_file

pytestmark = pytest.mark.examples

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/guide.md", "docs/security.md", "docs/workers.md", "docs/migrating-from-celery.md")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "XDG_DATA_HOME": str(folder / "data")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def run_python(page: str, folder: Path) -> None:
    # A block that begins with the name of a file is that file.
    program = "\n".join(block for block in blocks(page, "python") if not block.startswith("# "))
    run([sys.executable, "-c", program], folder)


def run_commands(page: str, folder: Path) -> None:
    for block in blocks(page, "sh"):
        commands = [line for line in block.splitlines() if line.startswith("tickwheel ")]
        # The tests of the worker's pages start the commands that run in the background.
        commands = [line for line in commands if " & " not in line]
        if commands:
            run(["sh", "-ec", "\n".join(commands)], folder)


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs_from_top_to_bottom_and_then_its_commands(page: str, tmp_path: Path) -> None:
    run_python(page, tmp_path)
    run_commands(page, tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_without_its_python(page: str, tmp_path: Path) -> None:
    run_commands(page, tmp_path)


def test_the_first_program_of_the_readme_prints_its_messages_and_the_commands_see_its_data(tmp_path: Path) -> None:
    program = blocks("README.md", "python")[0]
    assert run([sys.executable, "-c", program], tmp_path) == "order-16 pack it\norder-15 not paid in time\n"
    assert "order-15 completed" in " ".join(run(["tickwheel", "messages", "orders"], tmp_path).split())


def test_the_scenario_of_a_page_is_valid(tmp_path: Path) -> None:
    [shown] = blocks("docs/load.md", "toml")
    (tmp_path / "shop.toml").write_text(shown)
    scenario = scenario_file.read(tmp_path / "shop.toml")
    assert [queue.name for queue in scenario.queues] == ["mail", "report"]
    assert scenario.worker_count == 36


def test_the_make_targets_of_a_page_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    shown: set[str] = set()
    for page in PAGES:
        shown.update(re.findall(r"^make ([\w-]+)", "\n".join(blocks(page, "sh")), re.MULTILINE))
    assert shown
    for target in shown:
        assert re.search(rf"^{target}:", makefile, re.M), f"make {target} does not exist"


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    named = Counter[str]()
    found = set()
    for anchor in (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings):
        found.add(f"{anchor}-{named[anchor]}" if named[anchor] else anchor)
        named[anchor] += 1
    return found


def test_links_between_pages_have_existing_targets() -> None:
    folders = (ROOT / "docs", ROOT / "examples", ROOT / "wheel")
    for page in (*sorted(ROOT.glob("*.md")), *(page for folder in folders for page in sorted(folder.rglob("*.md")))):
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.relative_to(ROOT)} links to {target}"
            assert not anchor or anchor in anchors(linked), f"{page.relative_to(ROOT)} links to {target}#{anchor}"


def test_the_links_of_the_package_have_existing_targets() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    repository = project["urls"]["Homepage"]
    for url in project["urls"].values():
        assert url.startswith(repository)
        if found := re.fullmatch(r"/(?:blob|tree)/main/(.+)", url.removeprefix(repository)):
            assert (ROOT / found[1]).exists(), url
