"""Service processes are killed or frozen during calls: each call is still executed exactly once."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from services.process import free_port
from services.serving_program import SERVE, ServingProgram
from tests.fault.flaky_proxy import FlakyProxy
from tests.support.wait_until import eventually
from tickwheel import EnqueueResult, NewMessage, Queue, Tickwheel, Unavailable, aio
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

NAMESPACE = "service-faults"
MESSAGES = 400
KILLS = 6
POLLERS = 8
ENDS_S = 30


@pytest.fixture
def service(tickwheel_server: PrivateServer, tmp_path: Path) -> Iterator[ServingProgram]:
    """One service process. It keeps its port when it restarts."""
    address = f"127.0.0.1:{free_port()}"
    with ServingProgram(tmp_path, *SERVE, tickwheel_server.url, "--listen", address) as service:
        yield service
    tickwheel_server.clear(NAMESPACE)


@pytest.mark.timeout(240)
def test_each_call_happens_once_though_the_service_is_killed_repeatedly(service: ServingProgram) -> None:
    with Tickwheel(service.url, namespace=NAMESPACE, shards=4) as tickwheel:
        jobs = tickwheel.create_queue("jobs", lease=timedelta(minutes=5), backoff=timedelta(0))
        progress = Counter[str]()

        def kill() -> None:
            for n in range(KILLS):
                eventually(lambda n=n: progress["done"] > (n + 1) * MESSAGES // (KILLS + 2), "calls are executed", 100)  # type: ignore[misc]
                service.restart()

        killing = threading.Thread(target=kill)
        killing.start()
        attempts = []
        for n in range(MESSAGES):
            assert jobs.enqueue(b"%d" % n, id=f"m{n}").id == f"m{n}"
            [message] = jobs.dequeue()
            if n % 4 == 0:
                assert message.fail("again", retry_in=timedelta(0)) == "pending"
                [message] = jobs.dequeue()
            message.extend(timedelta(minutes=10))
            message.complete()
            attempts.append(message.attempt)
            progress["done"] += 1
        killing.join(ENDS_S)
        counts = jobs.counts()
        assert counts["completed"] == MESSAGES
        assert counts["running"] == counts["pending"] == 0
        assert attempts == [2 if n % 4 == 0 else 1 for n in range(MESSAGES)]


@pytest.mark.parametrize("count", [1, 2], ids=["enqueue", "enqueue_many"])
def test_an_enqueue_whose_answer_is_lost_returns_its_first_answer(
    service: ServingProgram, tickwheel_server: PrivateServer, count: int
) -> None:
    host, port = service.url.removeprefix("grpc://").split(":")
    ids = [f"lost{n}" for n in range(count)]
    with (
        FlakyProxy((host, int(port))) as proxy,
        Tickwheel(f"grpc://127.0.0.1:{proxy.port}", namespace=NAMESPACE, shards=2) as tickwheel,
        Tickwheel(tickwheel_server.url, namespace=NAMESPACE, drive=False) as direct,
    ):
        jobs = tickwheel.create_queue("jobs")
        stored = direct.queue("jobs")
        proxy.when_lost = lambda: eventually(lambda: stored.counts()["pending"] == count, "the messages are stored")
        proxy.loses_answer_to, proxy.times = b"lost0", 1
        results = [jobs.enqueue(id=ids[0])] if count == 1 else jobs.enqueue_many(NewMessage(id=id) for id in ids)
        assert results == [EnqueueResult(id, "pending", created=True) for id in ids]
        assert proxy.lost == 1
        assert not jobs.enqueue(id=ids[0]).created


def send_and_kill(service: ServingProgram, jobs: Queue, attempts: Counter[tuple[str, int]]) -> None:
    """Enqueue messages for the pollers, kill the service repeatedly, and wait until all messages are completed."""
    for n in range(MESSAGES // 4):
        jobs.enqueue(id=f"m{n}")
        if n % 20 == 10:
            service.restart()
    eventually(lambda: len(attempts) == MESSAGES // 4, f"all messages are completed: {len(attempts)}", 60)


def check_each_was_delivered_once(jobs: Queue, attempts: Counter[tuple[str, int]]) -> None:
    assert attempts == {(f"m{n}", 1): 1 for n in range(MESSAGES // 4)}
    assert jobs.counts()["running"] == 0


@pytest.mark.timeout(240)
@pytest.mark.parametrize("shards", [1, 4])
def test_threads_that_poll_an_empty_queue_receive_each_message_once_though_the_service_is_killed_repeatedly(
    service: ServingProgram, shards: int
) -> None:
    with Tickwheel(service.url, namespace=NAMESPACE, shards=shards) as tickwheel:
        # The lease is longer than the test: a message whose delivery was lost would stay Running.
        jobs = tickwheel.create_queue("jobs", lease=timedelta(minutes=5))
        attempts, ended = Counter[tuple[str, int]](), threading.Event()

        def poll() -> None:
            while not ended.is_set():
                for message in jobs.dequeue(limit=2):
                    message.complete()
                    attempts[message.id, message.attempt] += 1

        with ThreadPoolExecutor(POLLERS) as pollers:
            polling = [pollers.submit(poll) for _ in range(POLLERS)]
            try:
                send_and_kill(service, jobs, attempts)
            finally:
                ended.set()
            for future in polling:
                future.result(ENDS_S)
        check_each_was_delivered_once(jobs, attempts)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("shards", [1, 4])
def test_batched_polls_receive_each_message_once_though_the_service_is_killed_repeatedly(
    service: ServingProgram, shards: int
) -> None:
    attempts, ended, url = Counter[tuple[str, int]](), threading.Event(), service.url

    async def poll() -> None:
        async with aio.Tickwheel(url, namespace=NAMESPACE) as tickwheel:
            jobs = tickwheel.queue("jobs")
            while not ended.is_set():
                for messages in await asyncio.gather(*(jobs.dequeue(limit=2) for _ in range(POLLERS))):
                    await jobs.complete_many(messages)
                    attempts.update((message.id, message.attempt) for message in messages)

    with (
        Tickwheel(service.url, namespace=NAMESPACE, shards=shards) as tickwheel,
        ThreadPoolExecutor(1) as pollers,
    ):
        # The lease is longer than the test: a message whose delivery was lost would stay Running.
        jobs = tickwheel.create_queue("jobs", lease=timedelta(minutes=5))
        polling = pollers.submit(asyncio.run, poll())
        try:
            send_and_kill(service, jobs, attempts)
        finally:
            ended.set()
        polling.result(ENDS_S)
        check_each_was_delivered_once(jobs, attempts)


def test_a_call_to_a_frozen_service_ends_and_reports_that_it_may_have_happened(service: ServingProgram) -> None:
    with Tickwheel(service.url, namespace=NAMESPACE, timeout=timedelta(seconds=2)) as tickwheel:
        jobs = tickwheel.create_queue("jobs")
        with service.paused(), pytest.raises(Unavailable) as refused:
            jobs.enqueue(b"x", id="frozen")
        assert refused.value.may_have_happened
        assert jobs.enqueue(b"x", id="frozen").id == "frozen"
        assert jobs.counts()["pending"] == 1


def test_a_call_to_a_service_that_never_ran_has_not_happened() -> None:
    with pytest.raises(Unavailable) as refused:
        Tickwheel(f"grpc://127.0.0.1:{free_port()}", timeout=timedelta(seconds=1))
    assert not refused.value.may_have_happened
