"""Commands with --app work on the server and in the namespace of the app, as a worker of the app does."""

import os
from collections.abc import Callable

import pytest

from tests.integration.cli.command_runner import Run, WriteModule, document, documents
from tickwheel import Tickwheel

pytestmark = pytest.mark.integration

ROUTE = ("route", "set", "mail.send", "--to", "tickwheel", "--share", "0.5")
WriteApp = Callable[[str], tuple[str, str]]


@pytest.fixture
def write_app(write_module: WriteModule) -> WriteApp:
    """Write the module of an app with these arguments, and return the option of a command for the app."""

    def write(arguments: str) -> tuple[str, str]:
        write_module(
            "placed_shop",
            f"from tickwheel.tasks import TaskApp\napp = TaskApp({arguments})\n"
            "@app.task(name='mail.send', queue='mail')\ndef send() -> None: ...\n",
        )
        return "--app", "placed_shop:app"

    return write


def test_the_place_of_an_app_takes_precedence_over_the_environment(
    run: Run, cli_client: Tickwheel, write_app: WriteApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, namespace = os.environ["TICKWHEEL_URL"], os.environ["TICKWHEEL_NAMESPACE"]
    app = write_app(f"{url!r}, namespace={namespace!r}")
    monkeypatch.setenv("TICKWHEEL_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("TICKWHEEL_NAMESPACE", "elsewhere")

    result = run(*ROUTE, *app)
    run("queue", "create", *app)

    assert (
        "'mail.send': a share of 0.5 of the calls goes to tickwheel, the rest to celery"
        f" (written to {url}, namespace {namespace})\n" in result.stderr
    )
    assert list(cli_client.settings()) == ["route:mail.send"]
    assert [queue.name for queue in cli_client.queues()] == ["mail"]
    assert list(document(run("route", "list", "--json", *app))) == ["mail.send"]
    run("route", "unset", "mail.send", *app)
    assert cli_client.settings() == {}


def test_an_app_without_a_place_uses_that_of_the_environment(
    run: Run, cli_client: Tickwheel, write_app: WriteApp
) -> None:
    assert "Warning: the" not in run(*ROUTE, *write_app("")).stderr
    assert list(cli_client.settings()) == ["route:mail.send"]


def test_options_replace_the_place_of_the_app_with_a_warning(
    run: Run, cli_client: Tickwheel, write_app: WriteApp
) -> None:
    url, namespace = os.environ["TICKWHEEL_URL"], os.environ["TICKWHEEL_NAMESPACE"]
    app = write_app("'redis://:secret@127.0.0.1:1', namespace='elsewhere'")

    # The options are also the values of the environment.
    result = run(*ROUTE, *app, "--url", url, "--namespace", namespace)

    for own, used in (("redis://:***@127.0.0.1:1", url), ("elsewhere", namespace)):
        assert f"of {app[1]} is {own}, but the command uses {used}, which" in result.stderr
    assert "secret" not in result.stderr
    assert list(cli_client.settings()) == ["route:mail.send"]


def test_a_namespace_has_the_settings_of_the_app_unless_an_option_replaces_them(
    run: Run, cli_client: Tickwheel, write_app: WriteApp
) -> None:
    app = write_app("shards=3")
    assert "has 1 shards, not 3" in run("queue", "create", *app, code=2).stderr
    run("queue", "create", *app, "--shards", "1")


def test_a_changed_route_is_reported_also_as_json(run: Run, cli_client: Tickwheel) -> None:
    [line, *_] = run(*ROUTE, "--json").stderr.splitlines()
    assert "goes to tickwheel" in line
    assert line.startswith("{")
    assert document(run("route", "unset", "mail.send", "--json")) == {"mail.send": None}
    assert "'mail.send': no route, so all calls go to celery" in run("route", "unset", "mail.send").stderr
    assert documents(run("route", "list", "--json")) == [{}]
