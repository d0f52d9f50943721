"""A namespace that the environment names, and commands that are run in it."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from tests.integration.cli.running import TICKWHEEL, Run, Start, ended_at_the_end, wait_for_line
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
    with ended_at_the_end() as started:

        def start_one(*args: str) -> tuple[subprocess.Popen[str], str]:
            started.append(subprocess.Popen([*TICKWHEEL, *args], stderr=subprocess.PIPE, text=True))
            # Not the line of the log, which says where its messages are.
            return started[-1], wait_for_line(started[-1], "serving grpc").split()[1]

        yield start_one


@pytest.fixture
def namespace(tickwheel_server: PrivateServer) -> Iterator[str]:
    name = f"serve-{os.urandom(6).hex()}"
    yield name
    tickwheel_server.clear(name)
