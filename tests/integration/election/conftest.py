"""A ZooKeeper path for each test of the election, and a client that observes it."""

import logging
import os
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from services.zookeeper import ZooKeeper
from tickwheel.election.zookeeper_url import ZooKeeperUrl


@pytest.fixture
def url(zookeeper: ZooKeeper) -> ZooKeeperUrl:
    """A path for one test."""
    return ZooKeeperUrl.parse(f"zk://{zookeeper.hosts}/{os.urandom(6).hex()}")


@pytest.fixture
def watcher(url: ZooKeeperUrl) -> Iterator[KazooClient]:
    """A client that observes the nodes of the namespace."""
    logging.getLogger("tickwheel.kazoo").setLevel(logging.ERROR)
    client = KazooClient(",".join(url.hosts))
    client.start()
    yield client
    client.stop()
    client.close()
