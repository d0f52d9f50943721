"""A subscription whose connection is dead, but open: a waiting dequeue finds its message all the same."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from tests.fault.flaky_proxy import FlakyProxy
from tests.integration.blocking_aio import Blocking, LoopThread
from tests.support.wait_until import eventually
from tickwheel import Tickwheel, aio
from tickwheel.redis.wait_list import WaitList
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

WANTED = {"of": "1", "for": "workers"}
LONG = timedelta(seconds=100)
# Shorter than the time for which a search answers others in any case.
SOON_S = 15.0


@pytest.fixture(params=["thread", "task"])
def client(request: pytest.FixtureRequest, proxy: FlakyProxy, namespace: str) -> Iterator[Any]:
    if request.param == "thread":
        with Tickwheel(proxy.url, namespace=namespace, drive=False) as client:
            yield client
        return
    loop = LoopThread()
    try:
        blocking: Any = Blocking(loop, aio.Tickwheel(proxy.url, namespace=namespace, drive=False))
        blocking.open()
        yield blocking
        blocking.close()
    finally:
        loop.close()


def waiters_of(client: Any) -> WaitList:
    waiters: WaitList = client._io.wakeups._waiters
    return waiters


def test_a_filtered_dequeue_finds_its_message_although_its_subscription_is_silent(
    client: Any, proxy: FlakyProxy, tickwheel_server: PrivateServer, namespace: str
) -> None:
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as producer,
        ThreadPoolExecutor(1) as threads,
    ):
        queue = producer.create_queue("q")
        waiting = threads.submit(client.queue("q").dequeue, where=WANTED, wait=LONG)
        try:
            waiters = waiters_of(client)
            swept = waiters.wakeup_count + 2
            eventually(lambda: waiters.wakeup_count >= swept, "the dequeue waits, and sweeps have woken it")
            proxy.silences_subscribers = True
            queue.enqueue(id="wanted", metadata=WANTED)

            assert [message.id for message in waiting.result(SOON_S)] == ["wanted"]
            assert proxy.lost
        finally:
            proxy.silences_subscribers = False
            if not waiting.done():
                queue.enqueue(metadata=WANTED)
