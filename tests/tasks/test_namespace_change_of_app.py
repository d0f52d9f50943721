"""An app whose namespace changes, or whose queues are lost: its calls reach the right queue."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tickwheel import Tickwheel
from tickwheel.tasks import TaskApp
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


@pytest.fixture
def namespaces(tickwheel_server: PrivateServer) -> Iterator[list[str]]:
    names = [f"moving-{os.urandom(6).hex()}" for _ in range(2)]
    yield names
    for name in names:
        tickwheel_server.clear(name)


def test_calls_in_an_open_event_loop_go_to_the_new_target_of_a_moved_app(
    tickwheel_server: PrivateServer, namespaces: list[str]
) -> None:
    app = TaskApp(tickwheel_server.url, namespace=namespaces[0], drive=False)

    @app.task
    def note(text: str) -> None: ...

    async def move() -> None:
        await note.anow("before")
        client = await app._clients.current.client_async()
        await asyncio.to_thread(app.move, namespace=namespaces[1])
        await note.anow("after")
        await client.close()
        await app.aclose()

    asyncio.run(move())
    for name in namespaces:
        with Tickwheel(tickwheel_server.url, namespace=name, drive=False) as tickwheel:
            assert tickwheel.queue("default").counts()["pending"] == 1


def test_a_declared_queue_that_was_deleted_is_created_again(
    tickwheel_server: PrivateServer, namespaces: list[str]
) -> None:
    with TaskApp(tickwheel_server.url, namespace=namespaces[0], drive=False, auto_create=False) as app:
        app.queue("default", max_attempts=7)

        @app.task
        def note(text: str) -> None: ...

        note.now("before")
        tickwheel_server.clear(namespaces[0])
        with Tickwheel(tickwheel_server.url, namespace=namespaces[0], drive=False, auto_create=False) as tickwheel:
            note.now("after")
            assert tickwheel.queue("default").config().max_attempts == 7
            assert tickwheel.queue("default").counts()["pending"] == 1


class MovingApp(TaskApp):
    """An app that moves to ``target`` while it creates its first queue, as a task in another thread can do."""

    target: str | None = None

    def _config(self, name: str) -> Mapping[str, Any]:
        if (target := self.target) is not None:
            self.target = None
            self.move(namespace=target)
            self.tickwheel.queues()
        return super()._config(name)


def test_an_app_that_moves_during_the_creation_of_a_queue_creates_the_queue_in_its_new_namespace_too(
    tickwheel_server: PrivateServer, namespaces: list[str]
) -> None:
    app = MovingApp(tickwheel_server.url, namespace=namespaces[0], drive=False)
    app.queue("work", exclusive_key="user")
    # In a worker, the client of the first namespace stays open.
    with app._clients.keep_open(lambda: None):
        app.target = namespaces[1]
        app.declared("work")
        assert app.where["namespace"] == namespaces[1]
        assert app.declared("work").config().exclusive_key == "user"
