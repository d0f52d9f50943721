"""A Valkey primary and its replicas, as a failover needs them; who fails over is the caller."""

from collections.abc import Mapping
from pathlib import Path

from services.process import ServiceError, wait_until
from services.process_group import ProcessGroup
from services.valkey import ValkeyServer

_SYNC_S = 30.0


class ReplicaSet(ProcessGroup):
    """``servers``: one is the ``primary``, the others follow it. ``settings`` are those of every server.

    Each server is killed, paused and restarted by its own methods; restart() here also tells it whom to follow.
    """

    def __init__(self, folder: Path, *, replicas: int = 1, settings: Mapping[str, str] | None = None) -> None:
        self.servers = [ValkeyServer(f"valkey-{n}", folder / f"{n}", settings) for n in range(1 + replicas)]
        self.primary = self.servers[0]
        super().__init__(self.servers)

    @property
    def url(self) -> str:
        """Where the primary is."""
        return self.primary.url

    @property
    def replicas(self) -> list[ValkeyServer]:
        """All but the primary."""
        return [server for server in self.servers if server is not self.primary]

    def follow(self, replica: ValkeyServer, address: tuple[str, int] | None = None) -> None:
        """Have the replica replicate from the primary, and wait until it has all of it.

        ``address``: the host and port to reach the primary by, where a proxy stands between the two.
        """
        if replica is self.primary:
            raise ServiceError(f"{replica.name} is the primary: promote another first")
        host, _, port = self.primary.address.partition(":")
        replica.call("REPLICAOF", *(address or (host, port)))
        wait_until(lambda: self.is_in_sync(replica), f"{replica.name} follows {self.primary.name}", _SYNC_S)

    def is_in_sync(self, replica: ValkeyServer) -> bool:
        """Whether the replica has a link to its primary and the data that were there when it was made."""
        with replica.client() as client:
            info = client.info("replication")
        return bool(info["role"] == "slave" and info["master_link_status"] == "up")

    def promote(self, replica: ValkeyServer) -> None:
        """Make the replica the primary, followed by the other replicas that run. The old primary is left alone."""
        old = self.primary
        replica.call("REPLICAOF", "NO", "ONE")
        self.primary = replica
        for other in self.replicas:
            if other is not old and other.is_running:
                self.follow(other)

    def restart(self, server: ValkeyServer) -> None:
        """Start the server again on its data, as what it is in the set now: the primary or a replica."""
        server.restart()
        if server is not self.primary:
            self.follow(server)

    def _join(self) -> None:
        for replica in self.replicas:
            self.follow(replica)
