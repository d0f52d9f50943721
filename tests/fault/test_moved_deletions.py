"""Hash slots move, or servers fail over or restart, between two pages of a namespace's deletion: no key is left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from services.redis_cluster import RedisCluster
from services.slot_migration import SlotMigration
from services.valkey import ValkeyServer
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel, TickwheelError
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.removal import key_search
from tickwheel.operations.removal.delete_namespace import NamespaceDeletion
from tickwheel.redis.topology import hash_slot
from tickwheel.storage.keys import session_key

pytestmark = pytest.mark.fault

NAMESPACE, SHARDS = "moved", 12


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """A separate cluster for a test that breaks it."""
    with RedisCluster(tmp_path / "cluster") as started:
        yield started


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_search, "_PAUSE_S", 0)


def count_keys(server: ValkeyServer) -> int:
    with server.client() as client:
        return sum(1 for _ in client.scan_iter(match=f"{NAMESPACE}:*", count=10_000))


def primaries(cluster: RedisCluster) -> list[ValkeyServer]:
    """Return the primaries of the cluster that have slots."""
    return [node for node in cluster.nodes if "master" in (view := cluster.view(node)[0]).flags and view.slots]


def fill(tickwheel: Tickwheel) -> None:
    tickwheel.create_queue("work").enqueue_many(NewMessage(b"x", id=f"m{n}") for n in range(300))


class Deletion:
    """A deletion, page by page as the service runs it: each page continues from the token of the previous page."""

    def __init__(self, tickwheel: Tickwheel) -> None:
        self._tickwheel = tickwheel
        self._token = ""
        self.ended = False

    def take_page(self) -> int:
        deletion = NamespaceDeletion(NamespaceContext(NAMESPACE), self._token)
        removed = self._tickwheel._run(deletion.next())
        self._token, self.ended = deletion.token, deletion.ended
        return removed

    def take_pages(self, until: Callable[[], Any]) -> None:
        """Take pages until the condition is true. The deletion must not end before."""
        while not until():
            self.take_page()
            assert not self.ended

    def finish(self) -> None:
        while not self.ended:
            self.take_page()


def search_one_primary(cluster: RedisCluster, deletion: Deletion) -> tuple[ValkeyServer, int]:
    """Take pages until the first primary has no keys. Return the primary, and a shard of another primary."""
    everyone = primaries(cluster)
    assert all(map(count_keys, everyone))
    deletion.take_pages(lambda: not all(map(count_keys, everyone)))
    [searched] = [node for node in everyone if not count_keys(node)]
    # The metadata is on shard 0.
    shards = range(1, SHARDS)
    return searched, next(shard for shard in shards if cluster.primary_of(hash_slot(shard)).port != searched.port)


def check_empty(cluster: RedisCluster) -> None:
    """Check that the namespace has no keys, and that a new namespace of this name has no messages."""
    assert sum(map(count_keys, primaries(cluster))) == 0
    with Tickwheel(cluster.url, namespace=NAMESPACE, shards=SHARDS) as again:
        assert sum(again.create_queue("work").counts().values()) == 0


def test_the_keys_of_a_slot_that_moves_to_a_searched_primary_are_removed(cluster: RedisCluster) -> None:
    with Tickwheel(cluster.url, namespace=NAMESPACE, shards=SHARDS) as tickwheel:
        fill(tickwheel)
        deletion = Deletion(tickwheel)
        searched, shard = search_one_primary(cluster, deletion)
        cluster.migrate(hash_slot(shard), hash_slot(shard), searched)
        assert count_keys(searched) > 0
        deletion.finish()
        check_empty(cluster)


def test_the_keys_of_a_slot_that_moves_to_an_unknown_primary_are_removed(cluster: RedisCluster) -> None:
    for node in cluster.nodes:
        # A primary without slots must not become a replica.
        node.call("CONFIG", "SET", "cluster-allow-replica-migration", "no")
    without_slots, *others = primaries(cluster)
    for first, last in cluster.view(without_slots)[0].slots:
        cluster.migrate(first, last, others[0])
    cluster.wait_until_settled()
    with Tickwheel(cluster.url, namespace=NAMESPACE, shards=SHARDS) as tickwheel:
        fill(tickwheel)
        deletion = Deletion(tickwheel)
        _, shard = search_one_primary(cluster, deletion)
        cluster.migrate(hash_slot(shard), hash_slot(shard), without_slots)
        deletion.finish()
        check_empty(cluster)


@contextmanager
def begun_migration(cluster: RedisCluster) -> Iterator[tuple[Tickwheel, Deletion, SlotMigration]]:
    """Yield a client, a deletion that has searched one primary, and the begun migration of a slot to this primary.

    The block must finish the migration and the deletion.
    """
    with Tickwheel(cluster.url, namespace=NAMESPACE, shards=SHARDS) as tickwheel:
        fill(tickwheel)
        deletion = Deletion(tickwheel)
        searched, shard = search_one_primary(cluster, deletion)
        migration = SlotMigration(cluster, hash_slot(shard), searched)
        migration.begin()
        yield tickwheel, deletion, migration
        check_empty(cluster)


@pytest.mark.usefixtures("no_pauses")
def test_a_deletion_does_not_end_while_a_slot_moves_key_by_key(cluster: RedisCluster) -> None:
    with begun_migration(cluster) as (_, deletion, migration):
        migration.move()
        for _ in range(10):
            assert deletion.take_page() == 0
            assert not deletion.ended
        migration.finish()
        deletion.finish()


@pytest.mark.usefixtures("no_pauses")
def test_a_deletion_of_which_no_search_is_undisturbed_ends_with_an_error_and_can_be_repeated(
    cluster: RedisCluster,
) -> None:
    with begun_migration(cluster) as (tickwheel, deletion, migration):
        with pytest.raises(TickwheelError, match=r"is not finished after 40 searches.* Repeat the deletion"):
            deletion.finish()
        migration.move()
        migration.finish()
        tickwheel.delete_namespace()


def test_the_search_of_a_primary_that_fails_over_begins_again(cluster: RedisCluster) -> None:
    with Tickwheel(cluster.url, namespace=NAMESPACE, shards=SHARDS) as tickwheel:
        fill(tickwheel)
        primary = cluster.primary_of(hash_slot(0))
        [replica] = cluster.replicas_of(primary)
        with primary.client() as client:
            client.mset({session_key(NAMESPACE, 0, f"s{n}"): "x" for n in range(20_000)})
        count = count_keys(primary)
        deletion = Deletion(tickwheel)
        deletion.take_pages(lambda: count_keys(primary) < count - 8_000)
        # A cursor of the primary skips keys of the replica.
        replica.call("CLUSTER", "FAILOVER")
        eventually(lambda: "master" in cluster.view(replica)[0].flags, "the replica is promoted")
        cluster.wait_until_settled()
        deletion.finish()
        check_empty(cluster)


def test_the_search_of_a_server_that_restarts_begins_again(tmp_path: Path) -> None:
    with (
        ValkeyServer("valkey", tmp_path / "valkey", {"appendonly": "no"}) as server,
        Tickwheel(server.url, namespace=NAMESPACE) as tickwheel,
    ):
        fill(tickwheel)
        with server.client() as client:
            client.mset({session_key(NAMESPACE, 0, f"s{n}"): "x" for n in range(20_000)})
        deletion = Deletion(tickwheel)
        deletion.take_page()
        # From the snapshot, the restarted server has again the keys that the next pages remove.
        server.call("SAVE")
        deletion.take_pages(lambda: count_keys(server) < 10_000)
        server.kill()
        server.start()
        deletion.finish()
        assert count_keys(server) == 0
