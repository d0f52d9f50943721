"""How long a call is retried: the timeout of the client, that of a call, and that of the calls of producers."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.serving_program import SERVE, ServingProgram
from tests.fault.flaky_proxy import FlakyProxy
from tests.integration.blocking_aio import Blocking, LoopThread
from tests.support.celery_app import make_celery_app
from tests.support.wait_until import eventually
from tickwheel import InvalidArgument, Tickwheel, Unavailable, aio, limits
from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp, celery_routes
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

PRODUCER_S = limits.PRODUCER_RETRY_MS / 1000


@pytest.fixture
def url(proxy: FlakyProxy) -> str:
    """A URL for which each new connection waits for an answer of the server before the first call."""
    return f"{proxy.url}?client_name=impatient"


@pytest.fixture
def thread_client(url: str, namespace: str) -> Iterator[Any]:
    with Tickwheel(url, namespace=namespace, drive=False) as client:
        client.create_queue("work").enqueue(id="m")
        yield client


@pytest.fixture
def task_client(url: str, namespace: str) -> Iterator[Any]:
    loop = LoopThread()
    try:
        blocking: Any = Blocking(loop, aio.Tickwheel(url, namespace=namespace, drive=False))
        blocking.open()
        blocking.create_queue("work").enqueue(id="m")
        yield blocking
        blocking.close()
    finally:
        loop.close()


@pytest.fixture(params=["thread_client", "task_client"])
def client(request: pytest.FixtureRequest) -> Any:
    """A client without a timeout of its own, on a server that will not answer."""
    return request.getfixturevalue(request.param)


def seconds_until_unavailable(call: Any) -> float:
    began = time.monotonic()
    with pytest.raises(Unavailable):
        call()
    return time.monotonic() - began


@pytest.mark.parametrize("fault", ["stalls", "refuses"])
def test_the_timeout_of_a_call_replaces_that_of_the_client(client: Any, proxy: FlakyProxy, fault: str) -> None:
    work = client.queue("work")
    if fault == "stalls":
        proxy.stall()
    else:
        proxy.cut()
        proxy.refuses = True
    calls = (lambda: work.get("m", timeout=0.3), lambda: work.enqueue(b"x", timeout=timedelta(seconds=0.3)))
    for call in (*calls, lambda: client.queues(timeout=0.3)):
        assert 0.3 <= seconds_until_unavailable(call) < 2


def test_calls_of_producers_give_up_early_with_the_asyncio_client(task_client: Any, proxy: FlakyProxy) -> None:
    work = task_client.queue("work")
    proxy.cut()
    proxy.refuses = True
    assert PRODUCER_S <= seconds_until_unavailable(lambda: work.enqueue(b"x")) < PRODUCER_S + 2


def test_calls_of_producers_give_up_early_over_grpc(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    where = (tickwheel_server.url, "--namespace", namespace)
    with ServingProgram(tmp_path, *SERVE, *where) as service, TaskApp(service.url, namespace=namespace) as app:
        task = app.task(name="send")(lambda: None)
        task.now()
        service.kill()
        assert PRODUCER_S <= seconds_until_unavailable(task.now) < PRODUCER_S + 2
    tickwheel_server.clear(namespace)


def test_an_app_gives_up_early_outside_workers(proxy: FlakyProxy, namespace: str) -> None:
    proxy.refuses = True
    with TaskApp(proxy.url, namespace=namespace, drive=False) as app:
        task = app.task(name="send")(lambda: None)
        assert PRODUCER_S <= seconds_until_unavailable(task.now) < PRODUCER_S + 2
        app.move(timeout=0.2)
        assert seconds_until_unavailable(task.now) < 2


def test_an_option_of_a_task_is_the_timeout_of_one_call(proxy: FlakyProxy, namespace: str) -> None:
    with TaskApp(proxy.url, namespace=namespace, drive=False) as app:
        task = app.task(name="send")(lambda: None)
        task.now()
        proxy.cut()
        proxy.refuses = True
        assert seconds_until_unavailable(task.with_options(timeout=0.2).now) < 2


@pytest.mark.parametrize("kind", ["handle", "async handle", "task", "async task"])
def test_the_timeout_of_a_call_applies_while_the_client_cannot_be_opened(
    proxy: FlakyProxy, namespace: str, kind: str
) -> None:
    proxy.refuses = True
    with TaskApp(proxy.url, namespace=namespace, drive=False) as app:
        task = app.task(name="send")(lambda: None)
        handle, soon = task.handle("m"), task.with_options(timeout=0.3)
        calls: dict[str, list[Any]] = {
            "handle": [lambda: handle.cancel(timeout=0.3), lambda: handle.result(timeout=0.3, wait=1)],
            "async handle": [lambda: asyncio.run(handle.acancel(timeout=0.3))],
            "task": [soon.now],
            "async task": [lambda: asyncio.run(soon.anow())],
        }
        for call in calls[kind]:
            assert 0.3 <= seconds_until_unavailable(call) < 2


def test_a_call_with_a_short_timeout_does_not_wait_for_another_call_that_opens_the_client(
    proxy: FlakyProxy, namespace: str
) -> None:
    proxy.stall()
    with TaskApp(proxy.url, namespace=namespace, drive=False) as app, ThreadPoolExecutor(1) as pool:
        task = app.task(name="send")(lambda: None)
        opening = pool.submit(seconds_until_unavailable, task.now)
        eventually(app._clients.current._lock.locked, "the first call opens the client")
        assert 0.3 <= seconds_until_unavailable(lambda: task.with_options(timeout=0.3).now()) < 2
        assert opening.result(30) >= PRODUCER_S

        async def open_twice() -> None:
            client = aio.Tickwheel(proxy.url, namespace=namespace, drive=False)
            first = asyncio.create_task(client.open(timeout=5))
            # The first call takes the lock.
            await asyncio.sleep(0)
            with pytest.raises(Unavailable, match="another call still tries"):
                await client.open(timeout=0.3)
            with pytest.raises(Unavailable):
                await first

        asyncio.run(open_twice())


def test_a_call_that_may_try_longer_than_the_one_that_opens_the_client_makes_an_attempt_of_its_own(
    proxy: FlakyProxy, namespace: str
) -> None:
    proxy.stall()
    with TaskApp(proxy.url, namespace=namespace, drive=False) as app, ThreadPoolExecutor(2) as pool:
        task = app.task(name="send")(lambda: None)
        first = pool.submit(seconds_until_unavailable, task.with_options(timeout=0.5).now)
        eventually(app._clients.current._lock.locked, "the first call opens the client")
        second = pool.submit(task.with_options(timeout=20).now)
        assert first.result(30) < 3
        proxy.go_on()
        assert second.result(30).created

        async def open_twice() -> None:
            proxy.stall()
            client = aio.Tickwheel(proxy.url, namespace=namespace, drive=False)
            short = asyncio.create_task(client.open(timeout=0.5))
            await asyncio.sleep(0)
            longer = asyncio.create_task(client.open(timeout=20))
            with pytest.raises(Unavailable):
                await short
            proxy.go_on()
            await longer
            await client.close()

        asyncio.run(open_twice())


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1", "grpc://127.0.0.1:1"])
def test_a_client_has_a_timeout_for_its_opening(url: str) -> None:
    assert 0.3 <= seconds_until_unavailable(lambda: Tickwheel(url, open_timeout=0.3)) < 3
    assert 0.3 <= seconds_until_unavailable(lambda: asyncio.run(aio.Tickwheel(url).open(timeout=0.3))) < 3
    opening = aio.Tickwheel(url, open_timeout=0.3)
    assert 0.3 <= seconds_until_unavailable(lambda: asyncio.run(opening.open())) < 3


@pytest.mark.parametrize("timeout", [0, 31, True, "5s", float("nan")])
def test_a_wrong_timeout_of_an_opening_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidArgument, match="timeout must be"):
        Tickwheel("redis://127.0.0.1:1", open_timeout=timeout)
    with pytest.raises(InvalidArgument, match="timeout must be"):
        asyncio.run(aio.Tickwheel("redis://127.0.0.1:1").open(timeout=timeout))
    with pytest.raises(InvalidArgument, match="timeout must be"):
        aio.Tickwheel("redis://127.0.0.1:1", open_timeout=timeout)


@pytest.mark.parametrize("timeout", [0, 31, True, "5s", float("nan")])
def test_a_timeout_is_checked_before_anything_is_sent(client: Any, proxy: FlakyProxy, timeout: Any) -> None:
    proxy.cut()
    proxy.refuses = True
    work = client.queue("work")
    for call in (
        lambda: work.enqueue(timeout=timeout),
        lambda: work.dequeue(timeout=timeout),
        lambda: client.create_queue("other", timeout=timeout),
        lambda: list(work.messages(timeout=timeout)),
        lambda: work.purge(timeout=timeout),
    ):
        with pytest.raises(InvalidArgument, match="timeout must be"):
            call()


def test_a_timeout_of_the_client_applies_to_all_its_calls() -> None:
    settings = aio.Tickwheel("redis://localhost", timeout=2)._client_settings
    assert (settings.timeout_s, settings.producer_timeout_s) == (2, 2)
    settings = aio.Tickwheel("redis://localhost")._client_settings
    assert (settings.timeout_s, settings.producer_timeout_s) == (limits.RETRY_MS / 1000, PRODUCER_S)


def test_the_blocking_client_has_one_timeout_for_all_its_calls(thread_client: Any) -> None:
    settings = thread_client._client_settings
    assert (settings.timeout_s, settings.producer_timeout_s) == (limits.RETRY_MS / 1000, limits.RETRY_MS / 1000)


@pytest.mark.parametrize("fault", ["stalls", "refuses"])
def test_a_moved_call_of_celery_reads_its_route_and_is_sent_within_one_timeout(
    proxy: FlakyProxy, namespace: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    # Each call reads its route again.
    monkeypatch.setattr(celery_routes, "_CACHE_S", 0.0)
    celery = make_celery_app(monkeypatch)
    with TaskApp(proxy.url, namespace=namespace, timeout=3) as app:
        migrate(celery, app)
        app.route("note", to="tickwheel")
        celery.send_task("note")
        if fault == "stalls":
            proxy.stall()
        else:
            proxy.cut()
            proxy.refuses = True
        assert 3 <= seconds_until_unavailable(lambda: celery.send_task("note")) < 5
