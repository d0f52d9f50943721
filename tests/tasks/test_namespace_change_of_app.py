"""An app whose namespace changes, or whose queues are lost: its calls reach the right queue."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tickwheel import PayloadTooLarge, Tickwheel
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


@pytest.mark.parametrize("is_async", [False, True])
def test_a_queue_that_was_created_again_with_default_settings_gets_those_of_the_app_for_a_large_message(
    tickwheel_server: PrivateServer, namespaces: list[str], is_async: bool
) -> None:
    with (
        TaskApp(tickwheel_server.url, namespace=namespaces[0], drive=False) as app,
        Tickwheel(tickwheel_server.url, namespace=namespaces[0], drive=False) as tickwheel,
    ):
        app.queue("default", payload_limit=100_000)

        @app.task(name="note")
        def note(text: str) -> None: ...

        async def send(text: str) -> None:
            await note.anow(text) if is_async else note.now(text)

        async def run() -> None:
            await send("before")
            tickwheel.delete_queue("default", purge=True)
            tickwheel.queue("default").enqueue(b"by another program")
            await send("x" * 50_000)
            with pytest.raises(PayloadTooLarge):
                await send("x" * 100_001)
            await app.aclose()

        asyncio.run(run())
        queue = tickwheel.queue("default")
        assert queue.config().payload_limit == 100_000
        assert queue.counts()["pending"] == 2


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
