"""A queue that its programs have created is deleted: clients of the service notice it, and apps create it again."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.integration.service_thread import ServiceThread
from tickwheel import NewMessage, QueueNotFound, Tickwheel
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
        client._untraced_backend.expect_created_queues()
        yield client


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
@pytest.mark.parametrize("deleted_by", ["direct", "over_grpc"])
def test_an_app_creates_its_queue_again_as_it_was_declared(
    real_time_service: ServiceThread, direct: Tickwheel, over_grpc: Tickwheel, deleted_by: str, *, is_async: bool
) -> None:
    deleter = {"direct": direct, "over_grpc": over_grpc}[deleted_by]
    with TaskApp(real_time_service.url, namespace=direct._context.namespace) as app:
        app.queue("orders", exclusive_key="customer", max_attempts=7)

        @app.task(queue="orders", metadata=["customer"])
        def bill(customer: str) -> None: ...

        async def run() -> None:
            for _ in range(3):
                await bill.anow(customer="ann") if is_async else bill.now(customer="ann")
                config = direct.queue("orders").config()
                assert (config.exclusive_key, config.max_attempts) == ("customer", 7)
                assert direct.queue("orders").counts()["pending"] == 1
                deleter.delete_queue("orders", purge=True)
            await app.aclose()

        asyncio.run(run())


@pytest.mark.parametrize("count", [1, 3])
def test_a_client_notices_that_a_queue_that_it_has_created_was_deleted(
    direct: Tickwheel, over_grpc: Tickwheel, count: int
) -> None:
    messages = [NewMessage(id=f"m{n}") for n in range(count)]
    queue = over_grpc.create_queue("orders", max_attempts=7)
    assert len(queue.enqueue_many(messages)) == count
    direct.delete_queue("orders", purge=True)
    with pytest.raises(QueueNotFound):
        queue.enqueue_many(messages)
    assert [each.name for each in direct.queues()] == []
    # As over Redis, the next call creates the queue.
    assert len(queue.enqueue_many(messages)) == count
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
        client._untraced_backend.expect_created_queues()
        queue = client.create_queue("orders")
        # The first service still has the configuration of the deleted queue.
        over_grpc._untraced_backend._uids["orders"] = client._untraced_backend._uids["orders"]  # type: ignore[attr-defined]
        assert over_grpc.queue("orders").enqueue(id="after").created
        assert queue.get("after").state == "pending"


def test_a_client_that_deletes_its_queue_can_use_the_name_again(over_grpc: Tickwheel) -> None:
    queue = over_grpc.create_queue("orders", max_attempts=7)
    over_grpc.delete_queue("orders")
    assert queue.enqueue(id="m").created
    assert queue.config().max_attempts == 5
