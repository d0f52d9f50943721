"""Values that the shell completes."""

import pytest
from typer.testing import CliRunner

from tickwheel import Tickwheel
from tickwheel.cli.app import app
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


def completed(line: str) -> list[str]:
    """Return what the shell offers for the last word of a command line, which may be empty."""
    environment = {"_TICKWHEEL_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
    printed = CliRunner().invoke(app, env=environment, prog_name="tickwheel").stdout
    return printed.replace('"', "").split("\n")


def offers(line: str, *values: str) -> bool:
    return all(any(value in each for each in completed(line)) for value in values)


def test_the_names_of_queues_are_completed(cli_client: Tickwheel) -> None:
    for name in ("orders", "orders-eu", "mail"):
        cli_client.create_queue(name)
    assert offers("tickwheel messages or", "orders", "orders-eu")
    assert not offers("tickwheel messages or", "mail")
    assert offers("tickwheel queue show ", "orders", "mail")


def test_the_url_of_the_command_line_is_used(
    cli_client: Tickwheel, tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli_client.create_queue("orders")
    monkeypatch.setenv("TICKWHEEL_URL", "redis://127.0.0.1:1")
    assert not offers("tickwheel get or", "orders")
    assert offers(f"tickwheel --url {tickwheel_server.url} get or", "orders")


def test_without_a_url_no_queue_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TICKWHEEL_URL", raising=False)
    assert not offers("tickwheel get or", "orders")


def test_states_are_completed() -> None:
    assert offers("tickwheel messages orders --state ", "invisible", "running", "errored")
    assert offers("tickwheel messages orders --state co", "completed")
    assert not offers("tickwheel queue purge orders --state ", "running")
