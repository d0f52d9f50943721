"""Deletion of namespaces: nobody may use the namespace, every key goes, and clients notice."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster_server import ClusterServer
from tests.integration.service_thread import ServiceThread
from tests.support.event_process_thread import run_event_process
from tests.support.outbox import read_outbox
from tests.support.wait_until import eventually
from tickwheel import (
    InvalidArgument,
    NamespaceGone,
    NamespaceInUse,
    NamespaceNotFound,
    NewMessage,
    QueueNotFound,
    Tickwheel,
    TickwheelError,
)
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.events import Transition
from tickwheel.events.deduplication import Deduplicator
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.removal import delete_namespace
from tickwheel.operations.removal.delete_namespace import NamespaceDeletion
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

Open = Callable[..., Tickwheel]


@pytest.fixture(params=[1, 3], ids=["1-shard", "3-shards"])
def open_client(
    request: pytest.FixtureRequest, tickwheel_server: PrivateServer, namespace: str
) -> Iterator[Callable[..., Tickwheel]]:
    with ExitStack() as stack:

        def open_namespace(url: str = tickwheel_server.url, **options: Any) -> Tickwheel:
            return stack.enter_context(Tickwheel(url, namespace=namespace, **{"shards": request.param} | options))

        yield open_namespace


def fill(tickwheel: Tickwheel) -> None:
    for name in ("a", "b"):
        queue = tickwheel.queue(name)
        queue.enqueue_many(NewMessage(b"x" * 2_000, delay=n * timedelta(hours=1)) for n in range(30))
        queue.dequeue(3)
    tickwheel.set_setting("a", "b")


def keys(server: Any, namespace: str) -> list[bytes]:
    return list(server.scan_iter(match=f"{namespace}:*", count=10_000))


@pytest.mark.parametrize("over", ["redis", "grpc"])
def test_a_namespace_is_deleted_with_all_its_keys_and_can_be_created_again(
    open_client: Open, server: Any, namespace: str, service: ServiceThread, over: str
) -> None:
    old = open_client()
    fill(old)
    queue = old.queue("a")
    count = len(keys(server, namespace))
    deleting = old if over == "redis" else open_client(service.url)
    assert deleting.delete_namespace() >= count - 1
    assert keys(server, namespace) == []
    for call in (queue.enqueue, queue.purge, lambda: old.create_queue("c"), lambda: old.delete_queue("a")):
        with pytest.raises(NamespaceGone, match="no longer exists"):
            call()
    with pytest.raises(NamespaceNotFound):
        old.delete_namespace()
    assert keys(server, namespace) == []
    again = open_client(shards=2)
    assert again.queue("a").enqueue(id="m").created
    if over == "grpc":
        assert open_client(service.url, shards=2).queue("a").config().number == 1


def test_readers_of_events_do_not_mistake_messages_of_the_new_namespace_for_earlier_ones(
    open_client: Open, server: Any, namespace: str
) -> None:
    def transitions(client: Tickwheel) -> list[Transition]:
        outbox = read_outbox(server, namespace, client._context.shards)
        return [
            Transition(namespace, "a", one.id, None, one.incarnation, one.version, None, None, now, 0) for one in outbox
        ]

    now, reader = datetime.now(UTC), Deduplicator()
    messages = [NewMessage(id=f"m{n}") for n in range(20)]
    old = open_client()
    old.queue("a").enqueue_many(messages)
    old.queue("a").dequeue(20)
    for transition in transitions(old):
        reader.record(transition, 0)
    old.delete_namespace()
    again = open_client()
    again.queue("a").enqueue_many(messages)
    assert [reader.is_new(transition) for transition in transitions(again)] == [True] * 20


@pytest.mark.parametrize("steps", [1, 2, 4, 5])
def test_a_deletion_that_was_cut_off_refuses_clients_and_can_be_repeated(
    open_client: Open, server: Any, namespace: str, service: ServiceThread, steps: int
) -> None:
    old = open_client()
    fill(old)
    context = NamespaceContext(namespace)
    deletion = NamespaceDeletion(context)
    for _ in range(min(steps, 1 + 2 * old._context.shards - 1)):
        old._run(deletion.next())
    for url in (None, service.url):
        with pytest.raises(NamespaceGone, match="is being deleted: repeat `tickwheel namespace delete`"):
            open_client(*[url] if url else [], existing=True)
    for call in (lambda: old.create_queue("c"), old.queues, old.queue("a").counts, old.queue("a").lateness):
        with pytest.raises(NamespaceGone, match="no longer exists"):
            call()
    old.delete_namespace()
    assert keys(server, namespace) == []


@pytest.mark.parametrize("phase", ["versions", "search"])
def test_no_token_continues_a_deletion_that_does_not_exist(
    open_client: Open, server: Any, namespace: str, contents: Callable[[str], dict[str, Any]], phase: str
) -> None:
    client = open_client()
    fill(client)
    before = contents(namespace)
    for shard in range(client._context.shards):
        deletion = NamespaceDeletion(NamespaceContext(namespace), f"{phase}/{shard}/{'0' * 16}/0:::0:0")
        with pytest.raises(InvalidArgument, match="page_token belongs to another deletion"):
            client._run(deletion.next())
    assert contents(namespace) == before


def test_the_token_of_a_deletion_does_not_delete_the_namespace_that_was_created_afterwards(
    open_client: Open, namespace: str, contents: Callable[[str], dict[str, Any]]
) -> None:
    old = open_client()
    fill(old)
    deletion = NamespaceDeletion(NamespaceContext(namespace))
    tokens = []
    while not deletion.ended:
        old._run(deletion.next())
        tokens.append(deletion.token)
    new = open_client()
    fill(new)
    before = contents(namespace)
    # The last token is empty: it begins a deletion.
    for token in tokens[:-1]:
        with pytest.raises(InvalidArgument, match="page_token belongs to another deletion"):
            new._run(NamespaceDeletion(NamespaceContext(namespace), token).next())
    assert contents(namespace) == before
    # Another deletion of the new namespace has begun, too.
    new._run(NamespaceDeletion(NamespaceContext(namespace)).next())
    begun = contents(namespace)
    for token in tokens[:-1]:
        with pytest.raises(InvalidArgument, match="page_token belongs to another deletion"):
            new._run(NamespaceDeletion(NamespaceContext(namespace), token).next())
    assert contents(namespace) == begun
    new.delete_namespace()


def test_a_client_that_knows_the_configuration_adds_nothing_after_the_first_step(
    open_client: Open, server: Any, namespace: str
) -> None:
    old = open_client()
    fill(old)
    old._run(NamespaceDeletion(NamespaceContext(namespace)).next())
    for _ in range(10):
        with pytest.raises(NamespaceGone, match="no longer exists"):
            old.queue("a").enqueue()
    assert not [key for key in keys(server, namespace) if key.endswith(b":config")]
    old.delete_namespace()


def test_the_next_steps_remove_the_versions_that_the_first_step_has_left(
    open_client: Open, server: Any, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete_namespace, "_KEYS", 0)
    old = open_client()
    fill(old)
    deletion = NamespaceDeletion(NamespaceContext(namespace))
    for _ in range(1 + old._context.shards):
        old._run(deletion.next())
    with pytest.raises(NamespaceGone, match="no longer exists"):
        old.queue("a").enqueue()
    assert not [key for key in keys(server, namespace) if key.endswith(b":config")]
    old.delete_namespace()


@pytest.mark.parametrize("election", ["lock", "lease"])
@pytest.mark.parametrize("over", ["redis", "grpc"])
def test_a_driven_namespace_is_refused(
    open_client: Open,
    tickwheel_server: PrivateServer,
    namespace: str,
    tmp_path: Path,
    server: Any,
    service: ServiceThread,
    over: str,
    election: str,
) -> None:
    client = open_client()
    fill(client)
    deleting = client if over == "redis" else open_client(service.url)
    elected_by = LeaseOptions() if election == "lease" else tmp_path / "lock"
    with run_event_process(tickwheel_server.url, namespace, elected_by) as process:
        eventually(
            lambda: all(
                any(f"{shard}" in info["name"] and info["cmd"] == "xread" for info in server.client_list())
                for shard in range(client._context.shards)
            ),
            "the process follows the inboxes",
        )
        eventually(lambda: all(stats.epoch for stats in process.health().values()), "the health has each claim")
        with pytest.raises(NamespaceInUse, match="is being driven: connection") as refused:
            deleting.delete_namespace()
        ids = {client["id"] for client in server.client_list() if client["name"].startswith("tickwheel-events:")}
        assert str(refused.value).endswith(tuple(f"`CLIENT KILL ID {id_}`" for id_ in ids))
    assert client.queue("a").enqueue().created
    client.delete_namespace()


@pytest.mark.parametrize("over", ["redis", "grpc"])
def test_a_namespace_with_events_that_are_not_relayed_is_refused(
    open_client: Open, service: ServiceThread, over: str
) -> None:
    client = open_client(history="relay")
    deleting = client if over == "redis" else open_client(service.url, history="relay")
    client.queue("a").enqueue()
    with pytest.raises(NamespaceInUse, match=r"1 entries of events that are not relayed"):
        deleting.delete_namespace()
    assert client.queue("a").enqueue().created


def test_a_deletion_that_was_cut_off_is_repeated_although_events_were_added_during_its_first_step(
    open_client: Open, server: Any, namespace: str
) -> None:
    client = open_client(history="relay")
    client.create_queue("a")
    client._run(NamespaceDeletion(NamespaceContext(namespace)).next())
    # As after an enqueue between the check of the deletion and the moment at which it hides the namespace.
    server.xadd(shard_key(namespace, 0, "events"), {"e": "x"})
    client.delete_namespace()
    assert keys(server, namespace) == []


def test_a_deletion_that_was_cut_off_before_its_first_step_checks_the_relay_again(
    open_client: Open, server: Any, namespace: str
) -> None:
    client = open_client(history="relay")
    client.queue("a").enqueue()
    server.hset(shard_key(namespace, 0, "namespace"), "deletion", "0123456789abcdef")
    with pytest.raises(NamespaceInUse, match=r"1 entries of events that are not relayed"):
        client.delete_namespace()
    assert client.queue("a").enqueue().created


@pytest.mark.parametrize("over", ["redis", "grpc"])
@pytest.mark.parametrize(
    "record",
    [
        {"shards": "0", "deleting": "1"},
        {"shards": "1"},
        {"shards": "7"},
        {"shards": "L"},
        {"shards": "9" * 5_000},
        {"shards": "0", "deleting": b"\xff"},
        {"shards": "0", "deleting": "0", "deletion": ""},
        {"deletion": b"\xff"},
        {"deletion": "x" * 5_000},
        {"deletion": "0123456789abcdef:"},
        {"format": b"\xff"},
        {"format": "9" * 5_000},
    ],
)
def test_a_namespace_with_a_damaged_record_is_deleted_with_all_its_keys(
    open_client: Open, server: Any, namespace: str, service: ServiceThread, over: str, record: dict[str, bytes | str]
) -> None:
    client = open_client()
    deleting = client if over == "redis" else open_client(service.url)
    fill(client)
    # Keys of a shard that a later namespace of this name could have.
    server.set(shard_key(namespace, 7, "messages"), "x")
    server.set(shard_key(namespace, 16_383, "clock"), "x")
    other = [f"{namespace}x:{{0}}:clock", f"x{namespace}:{{0}}:clock", f"{namespace}:{{00}}:clock", f"{namespace}:0"]
    for key in other:
        server.set(key, "x")
    server.hset(shard_key(namespace, 0, "namespace"), mapping=record)

    # The command does not open the namespace, so it does not know the number of shards either.
    deleting._context.shards = 1
    deleting.delete_namespace()

    assert sorted(key.decode() for key in server.scan_iter(match=f"*{namespace}*", count=10_000)) == sorted(other)
    server.delete(*other)
    with pytest.raises(NamespaceNotFound):
        client.delete_namespace()


@pytest.mark.parametrize("over", ["redis", "grpc"])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_namespace_of_another_format_is_not_deleted(
    open_client: Open, server: Any, namespace: str, service: ServiceThread, over: str, steps: int
) -> None:
    client = open_client()
    deleting = client if over == "redis" else open_client(service.url)
    fill(client)
    deletion = NamespaceDeletion(NamespaceContext(namespace))
    for _ in range(steps):
        client._run(deletion.next())
    server.hset(shard_key(namespace, 0, "namespace"), "format", "3")
    before = sorted(keys(server, namespace))
    text = "'format' is b'3', and this version reads 2"
    with pytest.raises(TickwheelError, match=text):
        deleting.delete_namespace()
    with pytest.raises(TickwheelError, match=text):
        client._run(deletion.next())
    assert sorted(keys(server, namespace)) == before
    server.hset(shard_key(namespace, 0, "namespace"), "format", "2")
    deleting.delete_namespace()


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_deletion_continues_without_a_stored_format(
    open_client: Open, server: Any, namespace: str, steps: int
) -> None:
    client = open_client()
    fill(client)
    deletion = NamespaceDeletion(NamespaceContext(namespace))
    for _ in range(steps):
        client._run(deletion.next())
    server.hdel(shard_key(namespace, 0, "namespace"), "format")
    client.delete_namespace()
    assert keys(server, namespace) == []


def test_a_missing_namespace_is_reported(open_client: Open, tickwheel_server: PrivateServer) -> None:
    client = open_client()
    with pytest.raises(NamespaceNotFound):
        client._run(NamespaceDeletion(NamespaceContext("nowhere-at-all")).next())
    with pytest.raises(QueueNotFound):
        client.delete_queue("nowhere")


@pytest.mark.parametrize("over", ["redis", "grpc"])
def test_a_namespace_on_a_cluster_is_deleted_on_every_node(
    cluster_server: ClusterServer, namespace: str, over: str
) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(Tickwheel(cluster_server.url, namespace=namespace, shards=16))
        server = stack.enter_context(cluster_server.client())
        fill(client)
        slots = {server.keyslot(key) for key in keys(server, namespace)}
        assert len({server.nodes_manager.get_node_from_slot(slot).name for slot in slots}) > 1
        # The stored number of shards is too small.
        for shard in range(16, 32):
            server.set(shard_key(namespace, shard, "messages"), "x")
        deleting = client
        if over == "grpc":
            service = stack.enter_context(ServiceThread(cluster_server.url))
            deleting = stack.enter_context(Tickwheel(service.url, namespace=namespace))
        deleting.delete_namespace()
        assert keys(server, namespace) == []
        with pytest.raises(NamespaceGone, match="no longer exists"):
            client.queue("a").enqueue()
        again = stack.enter_context(Tickwheel(cluster_server.url, namespace=namespace, shards=2))
        assert again.queue("a").enqueue(id="m").created
        again.delete_namespace()
        assert keys(server, namespace) == []
