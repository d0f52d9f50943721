"""Answers that no Redis server gives: each call ends in time with an error of Tickwheel, and recovers afterwards."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.security.hostile_server import SHAPES, HostileServer
from tests.support.event_process_thread import run_event_process
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Queue, Tickwheel, TickwheelError, Unavailable, aio
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

TIMEOUT = timedelta(milliseconds=200)
WAIT = timedelta(milliseconds=100)

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "create_queue": lambda tw, _: tw.create_queue("new"),
    "queues": lambda tw, _: tw.queues(),
    "settings": lambda tw, _: tw.settings(),
    "set_setting": lambda tw, _: tw.set_setting("a", "b"),
    "enqueue": lambda _, queue: queue.enqueue(b"x"),
    "enqueue_many": lambda _, queue: queue.enqueue_many([NewMessage(b"x"), NewMessage(b"y", delay=WAIT)]),
    "dequeue": lambda _, queue: queue.dequeue(limit=2),
    "dequeue with a filter": lambda _, queue: queue.dequeue(where={"a": "b"}),
    "dequeue in exact order": lambda _, queue: queue.dequeue(consistency="exact"),
    "dequeue with a wait": lambda _, queue: queue.dequeue(wait=WAIT),
    "cancel": lambda _, queue: queue.cancel("m"),
    "reschedule": lambda _, queue: queue.reschedule("m", delay=WAIT),
    "redrive": lambda _, queue: queue.redrive("m"),
    "counts": lambda _, queue: queue.counts(),
    "lateness": lambda _, queue: queue.lateness(),
    "depth": lambda _, queue: queue.depth(),
    "explain": lambda _, queue: queue.explain("m"),
    "get": lambda _, queue: queue.get("m"),
    "config": lambda _, queue: queue.config(),
    "block": lambda _, queue: queue.block(),
}


@pytest.fixture
def hostile(tickwheel_server: PrivateServer) -> Iterator[HostileServer]:
    with HostileServer(urlsplit(tickwheel_server.url).path) as server:
        yield server


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.timeout(300)
def test_a_blocking_call_ends_with_an_error_of_tickwheel(
    hostile: HostileServer, tickwheel_server: PrivateServer, namespace: str, shape: str
) -> None:
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace) as healthy,
        Tickwheel(hostile.url, namespace=namespace, timeout=TIMEOUT) as tickwheel,
    ):
        healthy.create_queue("q")
        queue = tickwheel.queue("q")
        for good in range(2):
            for call in OPERATIONS.values():
                healthy.queue("q").enqueue(b"x", id="m")
                hostile.turn(SHAPES[shape], good)
                # An answer can also be one that the call accepts, such as an empty list.
                with suppress(TickwheelError):
                    call(tickwheel, queue)
                hostile.turn(None)
        eventually(lambda: _is_well(queue), "the client works again")


def _is_well(queue: Queue) -> bool:
    try:
        return queue.enqueue(b"x", id="after").state == "pending"
    except TickwheelError:
        return False


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.timeout(300)
def test_an_asyncio_call_ends_with_an_error_of_tickwheel(
    hostile: HostileServer, tickwheel_server: PrivateServer, namespace: str, shape: str
) -> None:
    async def run(healthy: Queue) -> None:
        async with aio.Tickwheel(hostile.url, namespace=namespace, timeout=TIMEOUT) as tickwheel:
            queue = tickwheel.queue("q")
            for call in OPERATIONS.values():
                healthy.enqueue(b"x", id="m")
                hostile.turn(SHAPES[shape])
                with suppress(TickwheelError):
                    await call(tickwheel, queue)
                hostile.turn(None)

    with Tickwheel(tickwheel_server.url, namespace=namespace) as client:
        asyncio.run(run(client.create_queue("q")))


def test_a_server_that_never_keeps_a_script_is_unavailable(hostile: HostileServer, namespace: str) -> None:
    with Tickwheel(hostile.url, namespace=namespace, timeout=TIMEOUT) as tickwheel:
        queue = tickwheel.create_queue("q")
        hostile.turn(SHAPES["no script"])
        with pytest.raises(Unavailable, match="just loaded"):
            queue.enqueue(b"x")


def test_the_error_of_a_broken_answer_names_the_server(hostile: HostileServer, namespace: str) -> None:
    with Tickwheel(hostile.url, namespace=namespace, timeout=TIMEOUT) as tickwheel:
        queue = tickwheel.create_queue("q")
        hostile.turn(SHAPES["integer"])
        with pytest.raises(TickwheelError, match="not one of Redis or Valkey") as raised:
            queue.counts()
        assert hostile.url in str(raised.value)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_event_process_continues_when_the_server_is_well_again(
    hostile: HostileServer, tickwheel_server: PrivateServer, namespace: str, shape: str, tmp_path: Path
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        queue = tickwheel.create_queue("q")
        with run_event_process(hostile.url, namespace, tmp_path / "lock"):
            queue.enqueue(b"x", delay=timedelta(milliseconds=1))
            [message] = queue.dequeue(wait=timedelta(seconds=10))
            message.complete()
            hostile.turn(SHAPES[shape])
            queue.enqueue(b"x", delay=timedelta(milliseconds=1))
            queue.dequeue(wait=timedelta(milliseconds=500))
            hostile.turn(None)
            queue.enqueue(b"x", delay=timedelta(milliseconds=1))
            eventually(lambda: queue.dequeue(), "a message is delivered")
