"""A cluster of three primaries with one replica each. The replica confirms every call."""

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from redis.crc import key_slot

from services.redis_cluster import RedisCluster
from services.valkey import ValkeyServer
from tests.fault.harness.deployment import Deployment
from tickwheel.storage.keys import shard_key

NODE_TIMEOUT_MS = 2_000


class ClusterDeployment(Deployment):
    """A deployment on a cluster. ``server`` is its first node."""

    durability = "replica:1"

    def __init__(self, folder: Path, *, proxied: bool, faked: str) -> None:
        super().__init__(folder, proxied=proxied, faked=faked)
        self.cluster = RedisCluster(folder, node_timeout_ms=NODE_TIMEOUT_MS, settings={"appendfsync": "always"})
        self.server = self.cluster.nodes[0]

    @property
    def url(self) -> str:
        return self.cluster.url

    @property
    def driver_url(self) -> str:
        return self.cluster.url

    @property
    def own_url(self) -> str:
        return self.cluster.url

    @property
    def servers(self) -> list[ValkeyServer]:
        return self.cluster.nodes

    def slot(self, namespace: str, shard: int) -> int:
        """Return the slot of a shard."""
        return int(key_slot(shard_key(namespace, shard, "clock").encode()))

    def another_primary(self, than: ValkeyServer) -> ValkeyServer:
        """Return another primary, to which slots can move."""
        views = {node.name: self.cluster.view(node)[0] for node in self.cluster.nodes if node.is_running}
        return next(node for node in self.cluster.nodes if node is not than and "master" in views[node.name].flags)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.cluster)
            self._stack = stack.pop_all()
        return self
