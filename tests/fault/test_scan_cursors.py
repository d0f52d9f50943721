"""The server of a shard changes or restarts in the middle of a purge, a deletion or a scan: no message is skipped.

A cursor of HSCAN is valid only in the process of the server that returned it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from services.redis_cluster import RedisCluster
from services.slot_migration import SlotMigration
from tests.fault.faulty_server import FaultyServer
from tests.fault.test_cluster_resharding import other_primaries
from tickwheel import NewMessage, QueueNotFound, Tickwheel
from tickwheel.doctor import audit
from tickwheel.operations.removal.delete_queue import QueueDeletion
from tickwheel.operations.removal.purge import Purge
from tickwheel.operations.scan import Scan
from tickwheel.redis.topology import hash_slot
from tickwheel.storage.keys import shard_key

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

MESSAGES, NAMESPACE, QUEUE = 12_000, "cursors", "work"
# Each step of a walk makes a new object from the token of the previous step, as the service does.
WALKS: dict[str, Callable[[Tickwheel, str], Any]] = {
    "purge": lambda tw, token: Purge(tw._context, QUEUE, None, token),
    "delete": lambda tw, token: QueueDeletion(tw._context, QUEUE, True, token),
    "list": lambda tw, token: Scan(tw._context, QUEUE, None, token),
}


@contextmanager
def filled(url: str, shards: int = 1, durability: str = "fsync") -> Iterator[Tickwheel]:
    """Yield a client of a new namespace whose queue has `MESSAGES` messages."""
    with Tickwheel(url, namespace=NAMESPACE, shards=shards, durability=durability, drive=False) as tickwheel:
        queue = tickwheel.create_queue(QUEUE)
        for first in range(0, MESSAGES, 1_000):
            queue.enqueue_many(NewMessage(b"x", id=f"m{first + n}") for n in range(1_000))
        yield tickwheel


def walk(tickwheel: Tickwheel, name: str, steps: int | None = None, token: str = "") -> tuple[str, list[Any]]:
    """Take steps of a walk, by default all. Return the token of the next step, and the answers."""
    answers: list[Any] = []
    while not answers or (token and len(answers) != steps):
        assert len(answers) < MESSAGES, "the walk does not end"
        position = WALKS[name](tickwheel, token)
        answers.append(tickwheel._run(position.next()))
        token = position.token
    return token, answers


def check_walk(tickwheel: Tickwheel, name: str, change_server: Callable[[], None]) -> None:
    """Walk with a change of the server in the middle, and assert that the walk reached every message."""
    token, first = walk(tickwheel, name, steps=16)
    assert token, "the walk ended before the change"
    change_server()
    _, last = walk(tickwheel, name, token=token)
    if name == "list":
        assert {view.id for page in [*first, *last] for view in page} == {f"m{n}" for n in range(MESSAGES)}
        return
    assert sum([*first, *last]) == MESSAGES
    if name == "purge":
        assert not any(tickwheel.queue(QUEUE).counts().values())
    else:
        with pytest.raises(QueueNotFound):
            tickwheel.queue(QUEUE).counts()
    assert tickwheel._run(audit(tickwheel._context)) == []


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_reaches_every_message_if_the_server_restarts(faulty: FaultyServer, name: str) -> None:
    def restart() -> None:
        faulty.kill()
        faulty.start()

    with filled(faulty.url) as tickwheel:
        check_walk(tickwheel, name, restart)


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_reaches_every_message_if_a_replica_takes_over(tmp_path: Path, name: str) -> None:
    with RedisCluster(tmp_path / "cluster") as cluster, filled(cluster.url, durability="replica:1") as tickwheel:

        def fail_over() -> None:
            primary = cluster.primary_of(hash_slot(0))
            [replica] = cluster.replicas_of(primary)
            cluster.fail_over(replica)
            cluster.wait_until_settled()

        check_walk(tickwheel, name, fail_over)


@pytest.mark.parametrize("is_atomic", [True, False], ids=["in-one-step", "key-by-key"])
@pytest.mark.parametrize("name", WALKS)
def test_a_walk_reaches_every_message_if_the_slot_moves(tmp_path: Path, name: str, is_atomic: bool) -> None:
    with RedisCluster(tmp_path / "cluster") as cluster, filled(cluster.url, durability="replica:1") as tickwheel:

        def migrate() -> None:
            slot = hash_slot(0)
            target = other_primaries(cluster, cluster.primary_of(slot))[0]
            if is_atomic:
                cluster.migrate(slot, slot, target)
            else:
                SlotMigration(cluster, slot, target).run()

        check_walk(tickwheel, name, migrate)


def test_a_cursor_of_another_process_starts_the_shard_from_its_first_page(faulty: FaultyServer) -> None:
    with filled(faulty.url) as tickwheel:
        token, _ = walk(tickwheel, "list", steps=16)
        shard, _, cursor = token.partition(":")
        earlier_version = f"{shard}:{cursor.partition('-')[2]}"
        for foreign in (f"{shard}:00000000-{cursor.partition('-')[2]}", earlier_version):
            _, pages = walk(tickwheel, "list", token=foreign)
            assert {view.id for page in pages for view in page} == {f"m{n}" for n in range(MESSAGES)}


def test_a_deletion_ends_the_messages_that_return_to_a_shard_after_its_purge(faulty: FaultyServer) -> None:
    """A failover can undo the last changes of a shard that the deletion has already left."""
    with filled(faulty.url, shards=2) as tickwheel, faulty.client() as server:
        token, _ = walk(tickwheel, "delete", steps=1)
        before = {key: server.dump(key) for key in server.scan_iter(f"{NAMESPACE}:{{0}}:*") if b"clock" not in key}
        while "/1:" not in token:
            token, _ = walk(tickwheel, "delete", steps=1, token=token)
        for key, value in before.items():
            server.restore(key, 0, value, replace=True)
        walk(tickwheel, "delete", token=token)
        assert [server.hlen(shard_key(NAMESPACE, shard, "messages")) for shard in range(2)] == [0, 0]
        with pytest.raises(QueueNotFound):
            tickwheel.queue(QUEUE).counts()
