"""`tickwheel queue create --app`: the queues of an app, as the app declares them."""

from pathlib import Path

import pytest

from tests.integration.cli.command_runner import Run, WriteModule, document
from tickwheel import Tickwheel

pytestmark = pytest.mark.integration

CREATE = ("queue", "create", "--app", "declared_shop:app")


@pytest.fixture(autouse=True)
def shop(write_module: WriteModule) -> Path:
    """The module of an app with two queues and a schedule."""
    return write_module(
        "declared_shop",
        "from tickwheel.tasks import TaskApp\napp = TaskApp()\n"
        "app.queue('render', exclusive_key='customer', lease=10)\n"
        "@app.task(queue='mail')\ndef send() -> None: ...\n"
        "app.every(60, send)\n",
    )


def test_all_queues_of_an_app_are_created_as_the_app_declares_them(run: Run, cli_client: Tickwheel) -> None:
    for _ in range(2):
        assert [queue["queue"] for queue in document(run(*CREATE, "--json"))] == ["render", "mail", "schedules"]
    assert cli_client.queue("render").config().exclusive_key == "customer"
    assert cli_client.queue("render").config().lease_ms == 10_000
    assert cli_client.queue("schedules").config().exclusive_key == "schedule"
    assert "customer" in run(*CREATE).stdout


def test_a_queue_with_another_configuration_changes_only_with_update(run: Run, cli_client: Tickwheel) -> None:
    cli_client.create_queue("render", exclusive_key="customer")
    assert "lease_ms is 30000, not 10000; use --update to change it" in run(*CREATE, code=1).stderr
    run(*CREATE, "--update")
    assert cli_client.queue("render").config().lease_ms == 10_000


@pytest.mark.parametrize("more", [("mail",), ("--lease", "5s"), ("--forecast",)])
def test_an_app_excludes_a_queue_and_settings(run: Run, more: tuple[str, ...]) -> None:
    assert "--app creates the queues as the app declares them" in run(*CREATE, *more, code=2).stderr


def test_a_queue_or_an_app_is_required(run: Run) -> None:
    assert "name the queue to create, or an app by --app" in run("queue", "create", code=2).stderr
