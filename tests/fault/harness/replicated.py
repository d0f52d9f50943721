"""A primary and a replica, every call confirmed by the replica; who is primary is decided by the faults."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from services.process import HOST
from services.replica_set import ReplicaSet
from services.valkey import ValkeyServer
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.harness.deployment import Deployment


class ReplicatedDeployment(Deployment):
    """All ways to the primary are proxies, which a failover turns; so is the replication's ``link``."""

    durability = "replica:1"

    def __init__(self, folder: Path, *, proxied: bool, faked: str) -> None:
        super().__init__(folder, proxied=proxied, faked=faked)
        self.set = ReplicaSet(folder, settings={"appendfsync": "always", "repl-timeout": "60"})
        self.server = self.set.primary
        self.link = FlakyProxy(_address(self.server), keeps_requests=False)

    @property
    def own_url(self) -> str:
        return self.proxies[2].url

    def client(self) -> Any:
        return self.set.primary.client(decode_responses=False)

    def fail_over(self) -> None:
        """Make the replica the primary, to which all ways but the clients' lead from now on."""
        [replica] = self.set.replicas
        self.set.promote(replica)
        self.server = replica
        for proxy in self.proxies[1:]:
            proxy.target = _address(replica)
            proxy.cut()

    def rejoin(self, old: ValkeyServer) -> None:
        """Bring the clients to the new primary, and the old one back as its replica."""
        self.link.target = _address(self.server)
        self.link.go_on()
        self.link.cut()
        if not old.is_running:
            old.start()
        self.set.follow(old, (HOST, self.link.port))
        self.proxies[0].target = _address(self.server)
        self.proxies[0].cut()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.link)
            stack.enter_context(self.set)
            [replica] = self.set.replicas
            self.set.follow(replica, (HOST, self.link.port))
            target = _address(self.server)
            self.proxies = [stack.enter_context(FlakyProxy(target, keeps_requests=False)) for _ in range(3)]
            self._stack = stack.pop_all()
        return self


def _address(server: ValkeyServer) -> tuple[str, int]:
    return HOST, server.port
