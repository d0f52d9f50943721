"""Integration tests that use a namespace run on one shard, on four, and with the asyncio client.

Tests of operations also run on 64 shards of a cluster, with both clients.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any, cast

import pytest

from services.redis_cluster import RedisCluster
from tests.integration.blocking_aio import aio_sandbox, blocking_aio
from tests.integration.cluster_server import ClusterServer
from tests.integration.service_thread import ServiceThread
from tests.support.outbox import read_outbox
from tickwheel import Message, Queue, Tickwheel
from tickwheel.storage.sharding import shard_of
from tickwheel.storage.transition import OutboxTransition
from tickwheel.testing import PrivateServer, VirtualClock, sandbox

WAYS = {"1-shard": 1, "4-shards": 4, "asyncio": 4}
CLUSTER_WAYS = {"cluster": 64, "asyncio-cluster": 64}
SERVICE_WAYS = {"grpc": 4, "asyncio-grpc": 4}
ON_A_CLUSTER = {
    "test_delete_queue",
    "test_doctor",
    "test_exclusive_queues",
    "test_explain",
    "test_filters",
    "test_inspect",
    "test_multi_shard_operations",
    "test_order",
    "test_purge",
    "test_retry_table_of_the_guide",
    "test_several_queues",
    "test_transitions",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "_tickwheel_sandbox" in metafunc.fixturenames:
        on_a_cluster = metafunc.module.__name__.rpartition(".")[2] in ON_A_CLUSTER
        ways = [*WAYS, *SERVICE_WAYS, *(CLUSTER_WAYS if on_a_cluster else ())]
        metafunc.parametrize("_tickwheel_sandbox", ways, indirect=True, scope="function")


@pytest.fixture(scope="session")
def cluster_server(redis_cluster: RedisCluster) -> Iterator[ClusterServer]:
    """The shared cluster, with the interface that sandboxes need of a server."""
    with closing(ClusterServer(redis_cluster)) as server:
        yield server


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> PrivateServer | ClusterServer:
    """The backend of a test's namespace."""
    way = request.node.callspec.params.get("_tickwheel_sandbox") if hasattr(request.node, "callspec") else None
    if way in CLUSTER_WAYS:
        return cast(ClusterServer, request.getfixturevalue("cluster_server"))
    return cast(PrivateServer, request.getfixturevalue("tickwheel_server"))


@pytest.fixture
def server(engine: PrivateServer | ClusterServer) -> Iterator[Any]:
    """A redis-py client of the test's server."""
    with engine.client() as client:
        yield client


@pytest.fixture
def _tickwheel_sandbox(
    request: pytest.FixtureRequest, engine: PrivateServer | ClusterServer
) -> Iterator[tuple[Tickwheel, VirtualClock]]:
    marker = request.node.get_closest_marker("tickwheel")
    settings = {"shards": (WAYS | SERVICE_WAYS | CLUSTER_WAYS)[request.param]} | (marker.kwargs if marker else {})
    if request.param not in SERVICE_WAYS:
        open_one = aio_sandbox if "asyncio" in request.param else sandbox
        with open_one(cast(PrivateServer, engine), **settings) as client:
            yield client
        return
    service: ServiceThread = request.getfixturevalue("service")
    # A direct client creates the namespace, under the clock of the test.
    with sandbox(cast(PrivateServer, engine), **settings) as (direct, clock):
        open_client: Any = blocking_aio if "asyncio" in request.param else Tickwheel
        with open_client(service.url, namespace=direct._context.namespace) as client:
            client._direct = direct
            yield cast(Tickwheel, client), clock


@pytest.fixture
def direct_client(tickwheel: Tickwheel) -> Tickwheel:
    """A client that connects directly to the server."""
    return getattr(tickwheel, "_direct", tickwheel)


@pytest.fixture
def queue(request: pytest.FixtureRequest, tw: Tickwheel) -> Queue:
    """The queue "q", with the settings of the marker ``queue``."""
    marker = request.node.get_closest_marker("queue")
    return tw.create_queue("q", **(marker.kwargs if marker else {}))


@pytest.fixture
def bring() -> Callable[..., Message | None]:
    """Enqueue a message, bring it to a state, and return its lease, if any. No other message may be Pending."""

    def bring_to(state: str, queue: Queue, id: str = "m", **options: Any) -> Message | None:
        if state == "invisible":
            options["delay"] = timedelta(hours=1)
        if state == "errored":
            options["max_attempts"] = 1
        queue.enqueue(b"payload", id=id, **options)
        message = None
        if state in ("running", "completed", "errored"):
            [message] = queue.dequeue(worker="worker 1")
        if message is not None and state == "completed":
            message.complete()
        if message is not None and state == "errored":
            message.fail("boom")
        if state == "cancelled":
            queue.cancel(id, options["metadata"]["of"] if queue.config().exclusive_key else None)
        return message

    return bring_to


@pytest.fixture
def history(tw: Tickwheel, server: Any) -> Callable[[str], list[OutboxTransition]]:
    """Read the transitions of the messages with an id, in order."""

    def of_id(id: str) -> list[OutboxTransition]:
        transitions = read_outbox(server, tw._context.namespace, tw._context.shards)
        return [transition for transition in transitions if transition.id == id]

    return of_id


@pytest.fixture
def neighbours(tw: Tickwheel) -> Callable[[str, int], list[str]]:
    """Return ids (or exclusive values) of a queue that are routed to one shard, in the order of their names."""

    def of_queue(queue: str, count: int) -> list[str]:
        names = (f"m{n:04}" for n in range(10_000))
        return [name for name in names if shard_of(queue, name.encode(), tw._context.shards) == 0][:count]

    return of_queue
