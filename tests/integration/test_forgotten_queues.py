"""Clients and the service keep nothing of deleted queues and namespaces, so that new names take no more memory."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any

import grpc
import pytest

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.support.reachable_names import find_names
from tests.support.wait_until import eventually
from tickwheel import InvalidArgument, QueueNotFound, Tickwheel, limits
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.operations import context, head_cache, ready_shards, sessions
from tickwheel.operations.context import NamespaceContext
from tickwheel.redis import shared_searches, subscriptions
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.runtime.time import monotonic_ms
from tickwheel.service import counters
from tickwheel.service.batching import enqueue_batcher, poll_coalescer
from tickwheel.sinks.registry import SinkRegistry
from tickwheel.tasks import client_group
from tickwheel.tasks.client_group import ClientGroup
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

QUEUES = 60
NAMES = r"gone-[0-9]+"
# The limit of each cache. All caches have at most a third of the names.
KEPT = 2
CACHES = {
    context: ["_CONFIGS_MAX"],
    head_cache: ["_QUEUES_MAX"],
    ready_shards: ["_MAX_KNOWN_EMPTY"],
    sessions: ["_UNANSWERED_MAX"],
    shared_searches: ["_MAX_GROUPS"],
    counters: ["QUEUES"],
    enqueue_batcher: ["_MAX_BUFFERS", "_MAX_BATCHERS"],
    poll_coalescer: ["_MAX_BATCHERS"],
}


@pytest.fixture(autouse=True)
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, names in CACHES.items():
        for name in names:
            monkeypatch.setattr(module, name, KEPT)
    monkeypatch.setattr(subscriptions, "IDLE_S", 0.0)


def use(tw: Tickwheel, name: str) -> None:
    """Use the name for a queue, a message, a pair, a worker and a request."""
    queue = tw.create_queue(name, indexed=["of"])
    queue.enqueue(id=name, metadata={"of": name})
    [message] = queue.dequeue(where={"of": name}, worker=name, request_id=f"{name}:1")
    message.complete()
    assert not queue.dequeue()
    assert not queue.dequeue(where={"of": name})
    assert not queue.dequeue(where={"of": name}, wait=timedelta(milliseconds=1))
    with pytest.raises(InvalidArgument):
        queue.dequeue(where={"other": name})
    with suppress(QueueNotFound):
        tw.queue(f"{name}.missing").dequeue()


def check_forgotten(*roots: object) -> None:
    kept = QUEUES // 3
    with suppress(AssertionError):
        eventually(lambda: len(find_names(roots, NAMES)) <= kept, "the subscriptions end", pause=0.2)
    found = find_names(roots, NAMES)
    assert len(found) <= kept, found


@pytest.mark.parametrize("deleted_by", ["the client", "another program"])
def test_nothing_remains_of_deleted_queues(
    deleted_by: str, tw: Tickwheel, direct_client: Tickwheel, service: ServiceThread, tickwheel_server: PrivateServer
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=tw._context.namespace, drive=False) as other:
        for number in range(QUEUES):
            name = f"gone-{number}"
            use(tw, name)
            (tw if deleted_by == "the client" else other).delete_queue(name, purge=True)
    check_forgotten(tw, service.server)


def delete(client: GenericClient, method: str, **fields: Any) -> None:
    """Delete a queue or a namespace, with all calls that this takes."""
    page = client.call(method, **fields)
    while token := page["next_page_token"]:
        page = client.call(method, **fields, page_token=token)


def test_nothing_remains_of_single_enqueues_and_polls_of_other_clients(
    real_time_service: ServiceThread, namespace: str
) -> None:
    with grpc.insecure_channel(real_time_service.target) as channel:
        client = GenericClient(channel)
        client.call("OpenNamespace", namespace=namespace, shards=4)
        for number in range(QUEUES):
            queue = {"namespace": namespace, "queue": f"gone-{number}"}
            client.call("Enqueue", **queue, message={"id": "1"})
            client.call("Dequeue", **queue)
            delete(client, "DeleteQueue", **queue, purge=True)
    check_forgotten(real_time_service.server)


def test_nothing_remains_of_namespaces_that_another_program_deleted(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    names = [f"{namespace}-{number}" for number in range(10)]
    with ServiceThread(tickwheel_server.url) as service, grpc.insecure_channel(service.target) as channel:
        client = GenericClient(channel)
        for name in names:
            client.call("OpenNamespace", namespace=name)
            with Tickwheel(tickwheel_server.url, namespace=name, drive=False) as direct:
                direct.delete_namespace()
        assert len(find_names([service.server], "|".join(names))) <= 2


def test_nothing_remains_of_a_namespace_that_the_service_deleted_and_waiting_calls_end(
    real_time_service: ServiceThread, namespace: str
) -> None:
    with grpc.insecure_channel(real_time_service.target) as channel:
        client = GenericClient(channel)
        client.call("OpenNamespace", namespace=namespace)
        queue = {"namespace": namespace, "queue": "q"}
        client.call("CreateQueue", **queue)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(client.call, "Dequeue", **queue, wait_ms=60_000, timeout=60)
            namespaces = real_time_service.server.namespaces
            eventually(lambda: any(item.wakeups.waiter_count for item in namespaces), "the call waits")
            delete(client, "DeleteNamespace", namespace=namespace)
            with pytest.raises(grpc.RpcError, match="no longer exists"):
                waiting.result(20)
    # gRPC keeps a call for a moment after its caller has the answer.
    server = real_time_service.server
    eventually(lambda: not find_names([server], namespace), "the service keeps nothing of the namespace", pause=0.1)


def test_an_event_process_forgets_the_queues_with_a_sink_that_it_has_reported(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as direct,
        closing(DriverExecutor(ConnectionPools(tickwheel_server.url), tickwheel_server.url, 10)) as io,
    ):
        directory = QueueDirectory(NamespaceContext(namespace), io)
        for number in range(3):
            direct.create_queue(f"gone-{number}", sink="kafka://topic")
            assert [*directory.queues_with_sinks(monotonic_ms())] == [f"gone-{number}"]
            direct.delete_queue(f"gone-{number}")
        assert not directory.queues_with_sinks(monotonic_ms())
        # The placeholders of deleted queues have other names.
        assert not find_names([directory], NAMES)


def test_an_event_process_keeps_a_limited_number_of_queues_whose_sink_it_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", KEPT)
    with closing(KafkaProducers("127.0.0.1:1")) as producers:
        sinks = SinkRegistry("shop", producers, topics=["orders"])
        for number in range(10):
            assert sinks.sink(f"gone-{number}", "kafka://topic") is None
    assert len(find_names([sinks], NAMES)) <= KEPT


def test_a_producer_of_tasks_keeps_a_limited_number_of_queues(
    tickwheel_server: PrivateServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_group, "_ENSURED_MAX", KEPT)
    monkeypatch.setattr(limits, "QUEUES_MAX", KEPT)
    clients = ClientGroup({"url": tickwheel_server.url, "namespace": namespace, "drive": False}, lambda name: {})
    for number in range(10):
        clients.ensure_queue(f"gone-{number}")
        clients.client().delete_queue(f"gone-{number}")
    found = find_names([clients], NAMES)
    clients.close()
    assert len(found) <= 2 * KEPT
