"""A Valkey primary and its replicas. A failover is up to the caller."""

from collections.abc import Mapping
from pathlib import Path

from services.process import ServiceError, wait_until
from services.process_group import ProcessGroup
from services.valkey import ValkeyServer

_SYNC_S = 30.0


class ReplicaSet(ProcessGroup):
    """``servers``: one is the ``primary``, the others follow it. ``settings`` apply to every server.

    Kill and pause servers by their own methods. To restart one, use `restart` here, which also restores its role.
    """

    def __init__(self, folder: Path, *, replicas: int = 1, settings: Mapping[str, str] | None = None) -> None:
        self.servers = [ValkeyServer(f"valkey-{n}", folder / f"{n}", settings) for n in range(1 + replicas)]
        self.primary = self.servers[0]
        super().__init__(self.servers)

    @property
    def url(self) -> str:
        """The URL of the primary."""
        return self.primary.url

    @property
    def replicas(self) -> list[ValkeyServer]:
        """All servers except the primary."""
        return [server for server in self.servers if server is not self.primary]

    def follow(self, replica: ValkeyServer, address: tuple[str, int] | None = None) -> None:
        """Let the replica follow the primary, and wait until it is in sync.

        ``address`` is the host and port at which the replica reaches the primary, if a proxy is between the two.
        """
        if replica is self.primary:
            raise ServiceError(f"{replica.name} is the primary: promote another first")
        host, _, port = self.primary.address.partition(":")
        replica.call("REPLICAOF", *(address or (host, port)))
        wait_until(lambda: self.is_in_sync(replica), f"{replica.name} follows {self.primary.name}", _SYNC_S)

    def is_in_sync(self, replica: ValkeyServer) -> bool:
        """Return whether the replica has a link to its primary and has completed the initial synchronization."""
        with replica.client() as client:
            info = client.info("replication")
        return bool(info["role"] == "slave" and info["master_link_status"] == "up")

    def promote(self, replica: ValkeyServer) -> None:
        """Promote the replica to primary, and let other running replicas follow it. The old primary stays as it is."""
        old = self.primary
        replica.call("REPLICAOF", "NO", "ONE")
        self.primary = replica
        for other in self.replicas:
            if other is not old and other.is_running:
                self.follow(other)

    def restart(self, server: ValkeyServer) -> None:
        """Restart the server on its data, in its current role: primary or replica."""
        server.restart()
        if server is not self.primary:
            self.follow(server)

    def _join(self) -> None:
        for replica in self.replicas:
            self.follow(replica)
