"""Real services for tests: the first test that uses a service starts it, and it stops at the end of the test run.

The services are shared: a test that breaks a service repairs it, or starts its own (services/).
"""

from collections.abc import Iterator

import grpc
import pytest

from services.kafka import Kafka
from services.redis_cluster import RedisCluster
from services.replica_set import ReplicaSet
from services.zookeeper import ZooKeeper
from tests.integration.service_thread import ServiceThread
from tests.support.kafka_topics import make_topic
from tickwheel.testing import PrivateServer
from tickwheel.testing.virtual_clock import FRAGMENT


@pytest.fixture(scope="session")
def replica_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """A Valkey primary with one replica."""
    with ReplicaSet(tmp_path_factory.mktemp("replica_set")) as started:
        yield started


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """A cluster of three primaries with a replica each."""
    with RedisCluster(tmp_path_factory.mktemp("redis_cluster")) as started:
        yield started


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A ZooKeeper ensemble of one server."""
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as started:
        yield started


@pytest.fixture(scope="session")
def zookeeper_quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A ZooKeeper ensemble of three servers."""
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper_quorum"), servers=3) as started:
        yield started


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka broker that does not create topics automatically."""
    with Kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A new topic of the broker."""
    return make_topic(kafka)


@pytest.fixture(scope="session")
def service(tickwheel_server: PrivateServer) -> Iterator[ServiceThread]:
    """The gRPC service of the tests' server. The test controls the clock."""
    with ServiceThread(tickwheel_server.url, FRAGMENT) as serving:
        yield serving


@pytest.fixture(scope="module")
def real_time_service(tickwheel_server: PrivateServer) -> Iterator[ServiceThread]:
    """The gRPC service of the tests' server, with the real clock of the server."""
    with ServiceThread(tickwheel_server.url) as serving:
        yield serving


@pytest.fixture
def channel(service: ServiceThread) -> Iterator[grpc.Channel]:
    """A channel to the service of the test's file."""
    with grpc.insecure_channel(service.target) as opened:
        yield opened
