"""A cluster in place of the kit's private server: its URL, a client that reads stored data, and the clean-up."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis.cluster import RedisCluster as Client

from services.redis_cluster import RedisCluster


class ClusterServer:
    """The part of `tickwheel.testing.PrivateServer` that tests and sandboxes use.

    All tests share one client, because a new client requests the slots and a description of every command.
    """

    def __init__(self, cluster: RedisCluster) -> None:
        self.url = cluster.url
        self._client: Any = Client.from_url(cluster.nodes[0].url, protocol=2)

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A redis-py client that reads stored data as bytes."""
        yield self._client

    def clear(self, namespace: str) -> None:
        """Delete everything of a namespace."""
        keys = list(self._client.scan_iter(match=f"{namespace}:{{*", count=10_000))
        with self._client.pipeline() as pipeline:
            for key in keys:
                pipeline.unlink(key)
            pipeline.execute()

    def close(self) -> None:
        self._client.close()
