"""A queue that its programs have declared is deleted: clients of the service notice it, and apps create it again."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from operator import gt
from typing import Any

import pytest

from tests.integration.service_thread import ServiceThread
from tests.support.wait_until import eventually
from tickwheel import NewMessage, QueueBlocked, QueueConfigConflict, QueueNotFound, Tickwheel
from tickwheel.tasks import TaskApp
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


@pytest.fixture
def direct(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    """A client that does not use the service."""
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as client:
        yield client


@pytest.fixture
def over_grpc(real_time_service: ServiceThread, direct: Tickwheel) -> Iterator[Tickwheel]:
    with Tickwheel(real_time_service.url, namespace=direct._context.namespace) as client:
        client._untraced_backend.expect_queue("orders")
        yield client


@pytest.fixture(params=["direct", "grpc"])
def app_url(request: pytest.FixtureRequest, real_time_service: ServiceThread, tickwheel_server: PrivateServer) -> str:
    """The URL of an app: that of the server, and that of a service."""
    return tickwheel_server.url if request.param == "direct" else real_time_service.url


def declare_orders(app: TaskApp) -> Any:
    """Declare a queue with settings that differ from the defaults, and a task. Return the task."""
    app.queue("orders", exclusive_key="customer", max_attempts=7)

    @app.task(name="bill", queue="orders", metadata=["customer"])
    def bill(customer: str) -> None: ...

    return bill


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
@pytest.mark.parametrize("deleted_by", ["direct", "over_grpc"])
def test_an_app_creates_its_queue_again_as_it_was_declared(
    real_time_service: ServiceThread, direct: Tickwheel, over_grpc: Tickwheel, deleted_by: str, *, is_async: bool
) -> None:
    deleter = {"direct": direct, "over_grpc": over_grpc}[deleted_by]
    with TaskApp(real_time_service.url, namespace=direct._context.namespace) as app:
        bill = declare_orders(app)

        async def run() -> None:
            for _ in range(3):
                await bill.anow(customer="ann") if is_async else bill.now(customer="ann")
                config = direct.queue("orders").config()
                assert (config.exclusive_key, config.max_attempts) == ("customer", 7)
                assert direct.queue("orders").counts()["pending"] == 1
                deleter.delete_queue("orders", purge=True)
            await app.aclose()

        asyncio.run(run())


def test_a_declared_queue_is_never_another_one(app_url: str, direct: Tickwheel) -> None:
    with TaskApp(app_url, namespace=direct._context.namespace) as app:
        declare_orders(app)
        handle = app.declared("orders")
        handle.enqueue(metadata={"customer": "ann"})
        direct.delete_queue("orders", purge=True)
        direct.create_queue("orders")
        for _ in range(3):
            with pytest.raises(QueueNotFound):
                handle.enqueue(metadata={"customer": "ann"})
        for _ in range(3):
            with pytest.raises(QueueConfigConflict):
                app.declared("orders")
    assert direct.queue("orders").counts()["pending"] == 0


def test_a_new_event_loop_declares_the_queue_again(app_url: str, direct: Tickwheel) -> None:
    with TaskApp(app_url, namespace=direct._context.namespace) as app:
        bill = declare_orders(app)

        async def run() -> None:
            await bill.anow(customer="ann")
            await app.aclose()

        for _ in range(2):
            asyncio.run(run())
            assert direct.queue("orders").config().exclusive_key == "customer"
            direct.delete_queue("orders", purge=True)


def test_no_thread_of_an_app_creates_its_queue_without_settings(
    real_time_service: ServiceThread, direct: Tickwheel
) -> None:
    stopping = threading.Event()
    enqueued = [0] * 16
    with TaskApp(real_time_service.url, namespace=direct._context.namespace) as app:
        bill = declare_orders(app)

        def produce(n: int) -> None:
            while not stopping.is_set():
                with suppress(QueueNotFound, QueueBlocked):
                    bill.now(customer="ann")
                    enqueued[n] += 1

        bill.now(customer="ann")
        threads = [threading.Thread(target=produce, args=(n,)) for n in range(len(enqueued))]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                direct.delete_queue("orders", purge=True)
                before = list(enqueued)
                eventually(lambda: all(map(gt, enqueued, before)), "each thread enqueues again", 60)  # noqa: B023
                assert direct.queue("orders").config().exclusive_key == "customer"
        finally:
            stopping.set()
            for thread in threads:
                thread.join()


@pytest.mark.parametrize("count", [1, 3])
def test_a_client_lets_no_other_queue_take_the_place_of_one_that_it_expects(
    direct: Tickwheel, over_grpc: Tickwheel, count: int
) -> None:
    messages = [NewMessage(id=f"m{n}") for n in range(count)]
    queue = over_grpc.create_queue("orders", max_attempts=7)
    assert len(queue.enqueue_many(messages)) == count
    direct.delete_queue("orders", purge=True)
    for _ in range(2):
        with pytest.raises(QueueNotFound):
            queue.enqueue_many(messages)
    assert direct.queues() == []
    over_grpc.create_queue("orders", max_attempts=7)
    assert len(queue.enqueue_many(messages)) == count


def test_a_client_creates_a_deleted_queue_that_it_does_not_expect(
    real_time_service: ServiceThread, direct: Tickwheel
) -> None:
    with Tickwheel(real_time_service.url, namespace=direct._context.namespace) as client:
        queue = client.create_queue("orders", max_attempts=7)
        queue.enqueue()
        direct.delete_queue("orders", purge=True)
        # The service still knows the deleted queue. As over Redis, the next call creates it.
        with pytest.raises(QueueNotFound):
            queue.enqueue(id="m")
        assert queue.enqueue(id="m").created
        assert queue.config().max_attempts == 5


def test_a_client_notices_that_a_queue_was_created_again_by_another_program(
    direct: Tickwheel, over_grpc: Tickwheel
) -> None:
    queue = over_grpc.create_queue("orders")
    direct.delete_queue("orders")
    direct.create_queue("orders", exclusive_key="customer")
    with pytest.raises(QueueNotFound, match="orders"):
        queue.enqueue(id="m")


def test_a_service_that_knows_an_earlier_queue_of_the_name_accepts_the_uid_of_the_present_one(
    tickwheel_server: PrivateServer, namespace: str, direct: Tickwheel, over_grpc: Tickwheel
) -> None:
    with ServiceThread(tickwheel_server.url) as other, Tickwheel(other.url, namespace=namespace) as client:
        over_grpc.create_queue("orders").enqueue(id="before")
        direct.delete_queue("orders", purge=True)
        client._untraced_backend.expect_queue("orders")
        queue = client.create_queue("orders")
        # The first service still has the configuration of the deleted queue.
        uid = client._untraced_backend._expected_queues.uid("orders")  # type: ignore[attr-defined]
        over_grpc._untraced_backend._expected_queues.on_created("orders", uid)  # type: ignore[attr-defined]
        assert over_grpc.queue("orders").enqueue(id="after").created
        assert queue.get("after").state == "pending"


def test_a_client_that_deletes_its_queue_must_create_it_again(over_grpc: Tickwheel) -> None:
    queue = over_grpc.create_queue("orders", max_attempts=7)
    over_grpc.delete_queue("orders")
    with pytest.raises(QueueNotFound):
        queue.enqueue(id="m")
    over_grpc.create_queue("orders", max_attempts=7)
    assert queue.enqueue(id="m").created
