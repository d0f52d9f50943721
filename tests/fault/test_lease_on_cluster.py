"""Event processes that elect leaders by lease on a Redis Cluster, whose primaries and processes are killed."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from services.process import ServiceError
from services.redis_cluster import RedisCluster
from services.valkey import ValkeyServer
from tests.fault.event_processes import EventProcessChild
from tests.fault.shard_owners import Owners, wait_until_pending
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel, TickwheelError
from tickwheel.doctor import LIVE_PASSES, audit
from tickwheel.model.message_id import new_message_id
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Plan, Request, Round
from tickwheel.redis.topology import hash_slot
from tickwheel.storage.keys import shard_key
from tickwheel.storage.sharding import shard_of

pytestmark = pytest.mark.fault

SHARDS = 6
NODE_TIMEOUT_S = 2.0
NAMESPACE = "tw"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path / "cluster", node_timeout_ms=int(NODE_TIMEOUT_S * 1000)) as started:
        yield started


@pytest.fixture
def client(cluster: RedisCluster) -> Iterator[Tickwheel]:
    with Tickwheel(cluster.url, namespace=NAMESPACE, shards=SHARDS) as tickwheel:
        yield tickwheel


class Leaders(Owners):
    """The leader of each shard. A shard that was released has no leader."""

    def __init__(self, tickwheel: Tickwheel) -> None:
        super().__init__(tickwheel, None)
        self._tickwheel = tickwheel

    def now(self) -> list[str]:
        with suppress(TickwheelError):
            claims = zip(self.read("owner"), self.read("holder"), strict=True)
            return [owner if holder else "" for owner, holder in claims]
        # A primary does not answer.
        return [""] * SHARDS

    def read(self, field: str) -> list[str]:
        return self._tickwheel._run(read_field(self._tickwheel._context, field))


def read_field(context: NamespaceContext, field: str) -> Plan[list[str]]:
    keys = [shard_key(context.namespace, shard, "clock") for shard in range(context.shards)]
    replies = yield Round([Request(shard, command=("HGET", key, field)) for shard, key in enumerate(keys)])
    return [(reply.value or b"").decode() for reply in replies]


@pytest.fixture
def leaders(client: Tickwheel) -> Leaders:
    return Leaders(client)


@pytest.fixture
def pair(cluster: RedisCluster, leaders: Leaders, tmp_path: Path) -> Iterator[tuple[EventProcessChild, ...]]:
    """Two event processes that share the shards."""
    with ExitStack() as stack:
        processes = tuple(
            stack.enter_context(EventProcessChild(cluster.url, NAMESPACE, tmp_path / f"{n}", election="lease"))
            for n in range(2)
        )
        leaders.settle(*processes, within=60)
        yield processes


def enqueue_on_all_shards(client: Tickwheel, count: int, delay: timedelta) -> int:
    """Enqueue messages on every shard. Return their number."""
    ids: dict[int, list[str]] = {shard: [] for shard in range(SHARDS)}
    while min(map(len, ids.values())) < count:
        id_ = new_message_id()
        ids[shard_of("jobs", id_.encode(), SHARDS)].append(id_)
    messages = [NewMessage(id=id_, delay=delay) for own in ids.values() for id_ in own]
    client.queue("jobs").enqueue_many(messages)
    return len(messages)


def shard_on_another_primary(cluster: RedisCluster, node: ValkeyServer) -> int:
    return next(shard for shard in range(SHARDS) if primary_of(cluster, shard).port != node.port)


def primary_of(cluster: RedisCluster, shard: int) -> ValkeyServer:
    return cluster.primary_of(hash_slot(shard))


def has_failed_over(cluster: RedisCluster, shard: int, node: ValkeyServer) -> bool:
    with suppress(ServiceError):
        return primary_of(cluster, shard).port != node.port
    return False


def assert_sound(client: Tickwheel) -> None:
    assert client._run(audit(client._context, passes=LIVE_PASSES)) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_cut_at_start", [False, True], ids=["a leader", "a new process"])
def test_the_shards_of_a_primary_that_one_process_cannot_reach_are_driven_by_the_other(
    cluster: RedisCluster,
    client: Tickwheel,
    leaders: Leaders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_cut_at_start: bool,
) -> None:
    cut, home = tmp_path / "cut", primary_of(cluster, 0)
    lost = primary_of(cluster, shard_on_another_primary(cluster, home))
    monkeypatch.setenv("CUT_PORT", str(lost.port))
    monkeypatch.setenv("CUT", str(cut))
    if is_cut_at_start:
        cut.touch()
    one = EventProcessChild(cluster.url, NAMESPACE, tmp_path / "one", election="lease")
    other = EventProcessChild(
        cluster.url, NAMESPACE, tmp_path / "other", election="lease", module="tests.fault.cut_event_process"
    )
    affected = [shard for shard in range(SHARDS) if primary_of(cluster, shard).port == lost.port]

    def owners() -> set[str]:
        return {leaders.now()[shard] for shard in affected}

    with one:
        leaders.settle(one, within=60)
        with other:
            if not is_cut_at_start:
                leaders.settle(one, other, within=60)
                cut.touch()
            count = enqueue_on_all_shards(client, 20, timedelta(seconds=1))
            wait_until_pending(client, count)
            name = f"{socket.gethostname()}:{one.pid}"
            eventually(lambda: owners() == {name}, "the other process drives the shards", 30)
            cut.unlink()
            leaders.settle(one, other, within=60)
    assert_sound(client)


@pytest.mark.timeout(300)
def test_a_killed_event_process_is_replaced_and_a_stopped_one_hands_its_shards_over(
    cluster: RedisCluster, client: Tickwheel, leaders: Leaders, pair: tuple[EventProcessChild, ...], tmp_path: Path
) -> None:
    one, another = pair
    count = enqueue_on_all_shards(client, 20, timedelta(seconds=1))
    one.kill()
    leaders.settle(another, within=60)
    wait_until_pending(client, count)
    with EventProcessChild(cluster.url, NAMESPACE, tmp_path / "third", election="lease") as third:
        leaders.settle(another, third, within=60)
        assert another.stop(within=10) == 0
        leaders.settle(third)
        count += enqueue_on_all_shards(client, 20, timedelta(milliseconds=100))
        wait_until_pending(client, count)
    assert_sound(client)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_metadata", [True, False], ids=["metadata", "other"])
def test_the_leaders_go_on_after_the_failover_of_a_primary(
    cluster: RedisCluster,
    client: Tickwheel,
    leaders: Leaders,
    pair: tuple[EventProcessChild, ...],
    is_metadata: bool,
) -> None:
    shard = 0 if is_metadata else shard_on_another_primary(cluster, primary_of(cluster, 0))
    primary = primary_of(cluster, shard)
    before = leaders.now()
    # The failover loses no message that the replica has.
    with Tickwheel(cluster.url, namespace=NAMESPACE, durability="replica:1") as durable:
        count = enqueue_on_all_shards(durable, 20, timedelta(seconds=1))
    primary.kill()
    eventually(lambda: has_failed_over(cluster, shard, primary), "the replica takes over", 60)
    leaders.settle(*pair, within=60)
    wait_until_pending(client, count)
    count += enqueue_on_all_shards(client, 20, timedelta(milliseconds=100))
    wait_until_pending(client, count)
    # Nobody was removed: while the metadata cannot be reached, and after that, the leaders keep their shards.
    assert leaders.now() == before
    # The election goes on: a process that is killed now is replaced.
    one, another = pair
    one.kill()
    leaders.settle(another, within=60)
    count += enqueue_on_all_shards(client, 20, timedelta(milliseconds=100))
    wait_until_pending(client, count)
    assert_sound(client)
