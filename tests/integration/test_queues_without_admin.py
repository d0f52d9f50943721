"""An app whose token may not create queues: it uses only queues that fit its declarations."""

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, write_token_file
from tickwheel import QueueConfigConflict, QueueNotFound, Tickwheel
from tickwheel.tasks import TaskApp
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

TOKEN = f"tw_{os.urandom(12).hex()}"


@pytest.fixture
def inside(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    """A client of the operator."""
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        yield tickwheel


@pytest.fixture
def app(inside: Tickwheel, tickwheel_server: PrivateServer, tmp_path: Path, namespace: str) -> Iterator[TaskApp]:
    """An app with a token for producing and consuming."""
    tokens = write_token_file(tmp_path, entry(TOKEN, '["produce", "consume"]', f'namespaces = ["{namespace}"]'))
    with (
        ServiceThread(tickwheel_server.url, tokens=tokens) as service,
        TaskApp(service.url.replace("//", f"//:{TOKEN}@"), namespace=namespace) as app,
    ):
        yield app


def test_a_queue_without_the_declared_exclusive_key_is_a_conflict(inside: Tickwheel, app: TaskApp) -> None:
    inside.create_queue("render")
    app.queue("render", exclusive_key="customer", lease=10)
    for _ in range(2):
        with pytest.raises(QueueConfigConflict, match="has exclusive_key=None, which never changes"):
            app.declared("render")
    with pytest.raises(QueueConfigConflict, match="has exclusive_key=None, which never changes"):
        asyncio.run(app._clients.current.ensure_queue_async("render"))


def test_a_queue_with_other_settings_is_used_as_it_is_with_one_warning(
    inside: Tickwheel, app: TaskApp, caplog: pytest.LogCaptureFixture
) -> None:
    inside.create_queue("render", exclusive_key="customer", backoff=0.5, backoff_max=1)
    app.queue("render", exclusive_key="customer", lease=10, max_attempts=5, backoff=2)
    with caplog.at_level(logging.WARNING, "tickwheel.tasks"):
        app.declared("render")
        app.declared("render")
    [warning] = [record.getMessage() for record in caplog.records if record.name == "tickwheel.tasks"]
    assert "queue render differs" in warning
    assert "lease is 30s instead of 10s, backoff is 500ms instead of 2s; to change" in warning


def test_a_queue_that_fits_its_declaration_causes_no_warning(
    inside: Tickwheel, app: TaskApp, caplog: pytest.LogCaptureFixture
) -> None:
    inside.create_queue("render", indexed=["b", "a"], lease=10, max_attempts=9)
    app.queue("render", indexed={"a", "b"}, lease=10, forecast=False)
    with caplog.at_level(logging.WARNING, "tickwheel.tasks"):
        app.declared("render")
    assert caplog.records == []


def test_the_error_about_a_missing_queue_names_the_command_that_creates_it(
    app: TaskApp, namespace: str, inside: Tickwheel
) -> None:
    app.queue("render", exclusive_key="customer id", lease=10, indexed=["b", "a"], forecast=True, backoff=0.25)
    with pytest.raises(QueueNotFound) as raised:
        app.declared("render")
    assert (
        f"run `tickwheel queue create render --namespace {namespace} --exclusive-key 'customer id' --lease 10s"
        " --indexed a --indexed b --forecast --backoff 250ms` with the role admin, or create all queues of the app by"
        " `tickwheel queue create --app MODULE:APP`" in str(raised.value)
    )
    assert "start a worker" not in str(raised.value)


def test_the_error_about_a_missing_queue_names_no_command_that_would_create_another_queue(
    app: TaskApp, namespace: str, inside: Tickwheel
) -> None:
    app.queue("no-options", indexed=[])
    with pytest.raises(QueueNotFound, match=r"run `tickwheel queue create --app MODULE:APP` with the role admin"):
        app.declared("no-options")
    app.queue("zero", backoff=0)
    with pytest.raises(QueueNotFound, match=f"`tickwheel queue create zero --namespace {namespace} --backoff 0"):
        app.declared("zero")
