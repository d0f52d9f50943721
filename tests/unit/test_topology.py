"""The topology of a cluster: the server of each shard, as servers report it."""

import pytest
from redis.exceptions import InvalidResponse

from tickwheel.errors import TickwheelError
from tickwheel.redis.topology import HASH_SLOTS, SINGLE, Topology, hash_slot, node_name

pytestmark = pytest.mark.unit

# The reply of CLUSTER SLOTS: first and last slot, the primary, its replicas.
HALVES = [
    [0, 8_191, [b"10.0.0.1", 7001, b"id1", []], [b"10.0.0.1", 7003, b"id3", []]],
    [8_192, HASH_SLOTS - 1, [b"10.0.0.2", 7002, b"id2", []]],
]


def cluster() -> Topology:
    topology = Topology(["seed:7000"])
    topology.update_from_cluster_slots(HALVES, "seed:7000")
    return topology


def test_the_slot_of_a_shard_is_the_slot_of_its_tag() -> None:
    # CLUSTER KEYSLOT 'tw:{3}:clock' and 'tw:{63}:clock'
    assert (hash_slot(3), hash_slot(63)) == (1_584, 10_499)


def test_a_single_server_has_every_shard() -> None:
    topology = Topology()
    assert not topology.is_cluster
    assert {topology.server(shard) for shard in range(64)} == {SINGLE}
    assert topology.representative_shards() == {SINGLE: 0}


def test_a_cluster_has_no_servers_of_shards_before_its_map_is_read() -> None:
    topology = Topology(["a:1", "b:2"])
    assert (topology.version, topology.server(0), topology.all_nodes()) == (0, None, ["a:1", "b:2"])


def test_each_shard_is_at_the_primary_of_its_slot() -> None:
    topology = cluster()
    assert (topology.server(3), topology.server(63)) == ("10.0.0.1:7001", "10.0.0.2:7002")
    assert {
        topology.server(shard): shard for shard in topology.representative_shards().values()
    } == topology.representative_shards()


def test_all_nodes_are_primaries_replicas_and_the_servers_of_the_url() -> None:
    assert set(cluster().all_nodes()) == {"10.0.0.1:7001", "10.0.0.1:7003", "10.0.0.2:7002", "seed:7000"}


def test_a_moved_slot_changes_the_server_of_no_other_slot() -> None:
    topology = cluster()
    topology.apply_moved(hash_slot(3), "10.0.0.2:7002")
    assert (topology.server(3), topology.server(2)) == (
        "10.0.0.2:7002",
        "10.0.0.1:7001" if hash_slot(2) < 8_192 else "10.0.0.2:7002",
    )


def test_a_slot_that_no_server_reports_has_no_server() -> None:
    topology = cluster()
    topology.update_from_cluster_slots(HALVES[1:], "seed:7000")
    assert (topology.server(3), topology.version) == (None, 2)


@pytest.mark.parametrize(
    ("host", "name"),
    [(b"10.0.0.1", "10.0.0.1:7"), ("::1", "[::1]:7"), (b"", "teller:7"), (None, "teller:7"), (b"?", "teller:7")],
)
def test_a_server_without_a_host_has_the_host_of_the_server_that_reported_it(
    host: bytes | str | None, name: str
) -> None:
    assert node_name(host, 7, "teller:1") == name


@pytest.mark.parametrize(
    "host", ["host:1/?ssl_cert_reqs=none&x=", "user@host", "host?db=1", "host#", "ho st", "[::1]", "\n"]
)
def test_a_host_that_would_change_the_url_of_the_connection_is_a_broken_answer(host: str) -> None:
    topology = Topology(["seed:7000"])
    with pytest.raises(InvalidResponse, match="is not the host of a server"):
        topology.update_from_cluster_slots([[0, 16_383, [host.encode(), 7001, b"id"]]], "seed:7000")
    assert topology.version == 0


def test_an_answer_with_a_server_that_must_not_be_used_changes_nothing() -> None:
    def check(server: str) -> None:
        if server == "10.0.0.1:7003":
            raise TickwheelError(f"{server} must not be used")

    topology = Topology(["seed:7000"], check)
    with pytest.raises(TickwheelError, match=r"10\.0\.0\.1:7003"):
        topology.update_from_cluster_slots(HALVES, "seed:7000")
    assert (topology.version, topology.server(63), topology.all_nodes()) == (0, None, ["seed:7000"])
    topology.update_from_cluster_slots(HALVES[1:], "seed:7000")
    assert topology.version == 1
