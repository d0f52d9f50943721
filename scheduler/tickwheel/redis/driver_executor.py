"""The executor of an event process, which also opens the connections of its drivers."""

from redis import Redis

from tickwheel.errors import TickwheelError
from tickwheel.plan import Request
from tickwheel.redis.blocking_executor import RedisExecutor


class DriverExecutor(RedisExecutor):
    """Runs plans as `RedisExecutor` does, and finds the server of a shard."""

    @property
    def is_cluster(self) -> bool:
        """Whether the shards can have different servers."""
        return self._servers.topology.is_cluster

    def connect(self, shard: int, key: str) -> Redis:
        """Return a redis-py client of the server that has the shard now.

        In a cluster, a request for ``key`` of the shard first brings the topology up to date.
        """
        topology = self._servers.topology
        if topology.is_cluster:
            self.round([Request(shard, command=("EXISTS", key))])
        server = topology.server(shard)
        if server is None:
            raise TickwheelError(f"no server of the cluster has shard {shard} now")
        return Redis(connection_pool=self._servers.pool(server))
