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
from tickwheel.testing import PrivateServer

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


# A substitute for the framework, which is not installed: it returns the functions of the routes.
FASTAPI = """
class FastAPI:
    def __init__(self, lifespan):
        self.lifespan = lifespan
        self.post = self.delete = lambda path: lambda function: function


class HTTPException(Exception): ...
"""
REQUESTS = """
import asyncio
import sys

import web
from shop import app, send

app.move(url=sys.argv[1])


async def serve():
    async with web.web.lifespan(web.web):
        print(await web.register(7), await web.register(7), await send.handle("welcome-7").astate())
        for _ in range(2):
            await web.unregister(7)
        await web.unregister(8)
        print(await send.handle("welcome-7").astate())
    app.move(url="redis://127.0.0.1:1", timeout=0.1)
    try:
        await web.register(9)
    except web.HTTPException as error:
        print(error)


asyncio.run(serve())
"""


def test_the_web_application_on_the_page_sends_and_cancels_tasks(
    tickwheel_server: PrivateServer, tmp_path: Path
) -> None:
    for block in blocks("docs/workers.md", "python"):
        if heading := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / heading[1]).write_text(block)
    (tmp_path / "fastapi.py").write_text(FASTAPI)
    (tmp_path / "requests_of_users.py").write_text(REQUESTS)
    done = subprocess.run(
        [sys.executable, "requests_of_users.py", tickwheel_server.url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "welcome-7 welcome-7 invisible\ncancelled\n503\n", done.stderr


def test_the_test_on_the_page_passes(tmp_path: Path) -> None:
    for block in blocks("docs/workers.md", "python"):
        if heading := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / heading[1]).write_text(block)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
