"""A namespace that the environment names, and commands that are run in it."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from tests.integration.cli.running import ENDS_S, TICKWHEEL, Run, Start
from tickwheel import Tickwheel
from tickwheel.cli.app import app
from tickwheel.testing import PrivateServer


@pytest.fixture
def place(tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tickwheel]:
    """A fresh namespace, which the environment names; and a client of it."""
    namespace = f"cli-{os.urandom(6).hex()}"
    monkeypatch.setenv("TICKWHEEL_URL", tickwheel_server.url)
    monkeypatch.setenv("TICKWHEEL_NAMESPACE", namespace)
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        yield tickwheel
    tickwheel_server.clear(namespace)


@pytest.fixture
def run(place: Tickwheel) -> Run:
    """Runs a command in this process; fails where the exit code is not the one expected."""

    def run_command(*args: object, code: int = 0, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)
        assert result.exit_code == code, f"{args}\n{result.stdout}\n{result.stderr}\n{result.exception!r}"
        return result

    return run_command


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a command that serves, and waits until it says where."""
    started: list[subprocess.Popen[str]] = []

    def start_one(*args: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen([*TICKWHEEL, *args], stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("serving "):
                return process, line.split()[1]
        pytest.fail(f"ended with {process.wait(ENDS_S)}")

    yield start_one
    for process in started:
        process.terminate()
        process.wait(ENDS_S)
        assert process.stderr is not None
        process.stderr.close()


@pytest.fixture
def namespace(tickwheel_server: PrivateServer) -> Iterator[str]:
    name = f"serve-{os.urandom(6).hex()}"
    yield name
    tickwheel_server.clear(name)
