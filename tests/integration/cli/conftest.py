"""A namespace that is set in the environment, and commands that run in it."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from contextvars import copy_context
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from services.serving_program import ServingProgram
from tests.integration.cli.command_runner import Run, Start, WriteModule
from tickwheel import Tickwheel
from tickwheel.cli.app import app
from tickwheel.testing import PrivateServer


@pytest.fixture
def cli_client(tickwheel_server: PrivateServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tickwheel]:
    """A client of a fresh namespace, which is set in the environment."""
    monkeypatch.setenv("TICKWHEEL_URL", tickwheel_server.url)
    monkeypatch.setenv("TICKWHEEL_NAMESPACE", namespace)
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        yield tickwheel


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteModule:
    """Write a module that this process can import until the end of the test."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, source: str) -> Path:
        # An earlier test may have imported a module of this name.
        monkeypatch.delitem(sys.modules, name, raising=False)
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        return path

    return write


@pytest.fixture
def run(cli_client: Tickwheel) -> Run:
    """Run a command in this process; fail if the exit code is not the expected one."""

    def run_command(*args: object, code: int = 0, stdin: str | bytes | None = None) -> Result:
        # A context of its own, because the option --json sets a context variable.
        result = copy_context().run(CliRunner().invoke, app, [str(arg) for arg in args], input=stdin)
        assert result.exit_code == code, f"{args}\n{result.stdout}\n{result.stderr}\n{result.exception!r}"
        return result

    return run_command


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command that serves. All commands are stopped at the end of the test."""
    with ExitStack() as stack:

        def start_command(*args: str) -> ServingProgram:
            return stack.enter_context(ServingProgram(tmp_path, "-m", "tickwheel", *args))

        yield start_command
