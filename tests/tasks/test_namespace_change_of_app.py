"""An app whose namespace changes, or whose queues are lost: its calls reach the right queue."""

import asyncio
import os
from collections.abc import Iterator

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
        client = await app._clients.client_async()
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
