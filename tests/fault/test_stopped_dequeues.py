"""Dequeues of a program that stops: they are not retried, whatever the server does, and lose no messages."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from tests.fault.flaky_proxy import FlakyProxy
from tests.integration.service_thread import ServiceThread
from tests.support.several_queues import LONG_S, NAMES, Caller
from tests.support.wait_until import eventually
from tickwheel import Tickwheel, Unavailable
from tickwheel.client.grpc import blocking_executor
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.redis import asyncio_pools, pools, retry_budget
from tickwheel.tasks import TaskApp
from tickwheel.worker.schedule_runner import ScheduleRunner

pytestmark = pytest.mark.fault

# A call can wait 5 s for its subscription, and up to 2 s for an answer. If the request was sent, it is sent again until
# 1 s after the stop. Over gRPC, an attempt is cancelled 2 s after the stop. Without a stop, it is retried for 30 s.
ENDS_S = {"refuses": 12.0, "stalls": 16.0}
ANSWER_S = STOP_GRACE_S = 1.0
LEASING_STOP_CHECKS = 4


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits of the product, which are 5 s and 6 s."""
    for module in (pools, asyncio_pools):
        monkeypatch.setattr(module, "ANSWER_S", ANSWER_S)
    monkeypatch.setattr(retry_budget, "STOP_GRACE_S", STOP_GRACE_S)
    monkeypatch.setattr(blocking_executor, "_LEASING_STOP_CHECKS", LEASING_STOP_CHECKS)


@pytest.fixture(params=["redis", "grpc"])
def client(request: pytest.FixtureRequest, proxy: FlakyProxy, namespace: str) -> Iterator[Tickwheel]:
    """A client of a server behind a proxy, or of a service of this server."""
    with Tickwheel(proxy.url, namespace=namespace, drive=False) as direct:
        for name in NAMES:
            direct.create_queue(name)
        if request.param == "redis":
            yield direct
            return
        with ServiceThread(proxy.url) as service, Tickwheel(service.url, namespace=namespace) as over_service:
            yield over_service
            # The service can stop only when its calls have ended.
            proxy.refuses = False
            proxy.go_on()


def dequeue(client: Tickwheel) -> list[str]:
    options = DequeueOptions.parse(1, wait=1)
    return [message.id for message in client._dequeue(NAMES[0], options, lambda: True)]


def dequeue_several(client: Tickwheel) -> list[str]:
    several: Any = Caller(client).several
    # The call waits if the last one has found all queues empty.
    found = client._dequeue_several(several, 0).messages or client._dequeue_several(several, 1.0, lambda: True).messages
    return [message.id for message in found]


CALLS = pytest.mark.parametrize("call", [dequeue, dequeue_several], ids=["one-queue", "several"])
Call = Callable[[Tickwheel], list[str]]


@pytest.mark.parametrize("fault", ENDS_S)
@pytest.mark.parametrize("waits", [False, True], ids=["first-call", "wait"])
def test_a_dequeue_that_is_stopped_is_not_retried(
    client: Tickwheel, proxy: FlakyProxy, fault: str, waits: bool
) -> None:
    several: Any = Caller(client).several
    if waits:
        client._dequeue_several(several, 0)
        assert several.is_idle
    if fault == "stalls":
        proxy.stall()
    else:
        proxy.refuses = True
    proxy.cut()
    for call in (
        lambda: client._dequeue(NAMES[0], DequeueOptions.parse(1, wait=1), lambda: True),
        lambda: client._dequeue_several(several, float(waits), lambda: True),
    ):
        began = time.monotonic()
        with pytest.raises(Unavailable):
            call()
        assert time.monotonic() - began < ENDS_S[fault]


@CALLS
def test_a_dequeue_that_is_stopped_returns_the_messages_of_the_answer(client: Tickwheel, call: Call) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(call, client)
        sent = client.queue(NAMES[0]).enqueue()
        assert waiting.result(LONG_S) == [sent.id]


def test_a_schedule_runner_that_is_stopped_does_not_retry_its_dequeue(
    proxy: FlakyProxy, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    def tick() -> None:
        pass

    # With the timeout of a worker.
    with TaskApp(proxy.url, namespace=namespace, drive=False, timeout=30) as app:
        app.every(timedelta(hours=1), app.task(name="tick")(tick))
        runner = ScheduleRunner(app)
        runner.start()
        eventually(lambda: app.tickwheel.queues(), "the queue of the schedules is created")
        eventually(lambda: app.tickwheel.queue(app.schedule_queue).counts()["invisible"], "the schedule is ensured")
        proxy.refuses = True
        proxy.cut()
        eventually(lambda: "retrying in" in caplog.text, "the dequeue is retried")
        began = time.monotonic()
        runner.close()
        assert time.monotonic() - began < ENDS_S["refuses"]
        assert "cannot handle schedules" not in caplog.text
        proxy.refuses = False
