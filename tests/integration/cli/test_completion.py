"""Values that the shell completes."""

import os

import pytest
from typer.testing import CliRunner

from tests.integration.cli.command_runner import WriteModule
from tests.support.celery_app import make_celery_app
from tickwheel import Tickwheel
from tickwheel.cli.app import app
from tickwheel.storage.keys import settings_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

# A Celery app that migrates. One of its tasks stays with Celery.
APP = """
from celery import Celery
from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp

print("printed by the module")
celery = Celery("completed", broker="memory://", set_as_current=False)
tickwheel = TaskApp()
migrate(celery, tickwheel)


@celery.task(name="mail.send", rate_limit="2/s")
def send() -> None: ...
"""


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


def test_the_names_of_routed_tasks_are_completed(cli_client: Tickwheel) -> None:
    for task in ("mail.send", "mail.read", "report"):
        cli_client.set_setting(f"route:{task}", '{"to":"tickwheel","share":1.0}')
    assert offers("tickwheel route set mail.", "mail.send", "mail.read")
    assert not offers("tickwheel route set mail.", "report")
    assert offers("tickwheel route unset ", "mail.send", "report")


def test_names_that_a_shell_would_evaluate_are_not_offered(
    cli_client: Tickwheel, tickwheel_server: PrivateServer
) -> None:
    """Shells evaluate what is completed, and a Redis user of the namespace can write any name."""
    cli_client.set_setting("route:mail.send", '{"to":"tickwheel","share":1.0}')
    route = '{"to":"celery","share":1}'
    with tickwheel_server.client() as redis:
        for name in ("mail.$(id)", "mail.`id`", "mail.\\$(id)", "mail.\n", 'mail."', "mail.;id", "mail. id"):
            redis.hset(settings_key(cli_client._context.namespace), f"route:{name}", route)
    assert completed("tickwheel route set mail.")[0] == "_arguments '*: :((mail.send))'"


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)\n", "raise ValueError\n"])
def test_the_names_of_the_tasks_of_an_app_are_completed(
    cli_client: Tickwheel, write_module: WriteModule, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    # Afterwards, the current app of this process is the former one.
    make_celery_app(monkeypatch)
    cli_client.set_setting("route:mail.read", '{"to":"tickwheel","share":1.0}')
    module = f"completed_app_{len(ending)}"
    write_module(module, APP + ending)
    offered = "\n".join(completed(f"tickwheel route set --app {module}:tickwheel "))
    # If the module cannot be imported, the tasks with a route are left.
    assert ("mail.send" in offered) == (not ending)
    assert "mail.read" in offered
    assert "printed" not in offered


def test_the_routes_of_the_server_and_the_namespace_of_an_app_are_completed(
    cli_client: Tickwheel, write_module: WriteModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli_client.set_setting("route:mail.read", '{"to":"tickwheel","share":1.0}')
    url, namespace = os.environ["TICKWHEEL_URL"], os.environ["TICKWHEEL_NAMESPACE"]
    monkeypatch.setenv("TICKWHEEL_URL", "redis://127.0.0.1:1")
    write_module(
        "placed_app", f"from tickwheel.tasks import TaskApp\napp = TaskApp({url!r}, namespace={namespace!r})\n"
    )
    assert offers("tickwheel route unset --app placed_app:app mail.", "mail.read")
    # As for the command, an option replaces the namespace of the app.
    assert not offers("tickwheel route unset --app placed_app:app --namespace other mail.", "mail.read")


def test_states_are_completed() -> None:
    assert offers("tickwheel messages orders --state ", "invisible", "running", "errored")
    assert offers("tickwheel messages orders --state co", "completed")
    assert not offers("tickwheel queue purge orders --state ", "running")
