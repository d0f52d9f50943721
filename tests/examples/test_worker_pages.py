"""The pages about workers work as documented: files are written, commands run, and the test passes."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from services.process import Process, free_port
from tests.examples.test_docs import blocks
from tests.support.wait_until import eventually
from tickwheel import Tickwheel

pytestmark = pytest.mark.examples


@contextmanager
def run_in_background(command: str, folder: Path, environment: dict[str, str], ready_when: str = "") -> Iterator[None]:
    """Start a command that is stopped at the end, with exit status 0."""
    process = Process(command.split()[1], command.split(), folder, ready_when, environment=environment)
    process.start()
    try:
        yield
    finally:
        assert process.stop(60) == 0, process.log


@pytest.mark.parametrize("page", ["README.md", "docs/workers.md"])
def test_the_worker_on_the_page_runs_the_tasks_that_the_program_sends(page: str, tmp_path: Path) -> None:
    port = str(free_port())
    for block in blocks(page, "python"):
        if heading := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / heading[1]).write_text(block.replace("7400", port))
    [dev, worker, program] = next(
        [line.partition(" # ")[0].rstrip(" &") for line in block.splitlines()]
        for block in blocks(page, "sh")
        if "tickwheel dev" in block
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "XDG_DATA_HOME": str(tmp_path / "data")}
    with ExitStack() as processes:
        dev += f" --listen 127.0.0.1:{port}"
        processes.enter_context(run_in_background(dev, tmp_path, environment, ready_when="serving grpc://"))
        processes.enter_context(run_in_background(worker, tmp_path, environment))
        sent = subprocess.run(program.split(), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, check=True)
        mail, *others = sent.stdout.decode().split()
        with Tickwheel(f"grpc://127.0.0.1:{port}") as tickwheel:
            queue = tickwheel.queue("mail")
            eventually(lambda: queue.get(mail).result == '"welcome to user 7"', "the first task has run", 30, 0.05)
            encode = tickwheel.queue("encode")
            eventually(
                lambda: all(encode.get(other, "p1").state == "completed" for other in others),
                "the second task has run",
                30,
                0.05,
            )


def test_the_test_on_the_page_passes(tmp_path: Path) -> None:
    for block in blocks("docs/workers.md", "python"):
        if heading := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / heading[1]).write_text(block)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
