"""A cluster in the place of the kit's private server: where it is, a client that looks at it, and what clears it."""

from typing import Any

from redis.cluster import RedisCluster as Client

from services.redis_cluster import RedisCluster


class ClusterServer:
    """As much of `tickwheel.testing.PrivateServer` as tests and sandboxes use."""

    def __init__(self, cluster: RedisCluster) -> None:
        self.url = cluster.url
        self._cluster = cluster

    def client(self) -> Any:
        """A redis-py client, to look at what is stored; bytes, not text. Close it."""
        return Client.from_url(self._cluster.nodes[0].url, protocol=2)

    def clear(self, namespace: str) -> None:
        """Delete everything of a namespace."""
        with self.client() as client:
            for key in client.scan_iter(match=f"{namespace}:{{*", count=10_000):
                client.unlink(key)
