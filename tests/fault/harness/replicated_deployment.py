"""A primary and a replica that confirms every call. The faults decide which server is the primary."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from services.process import HOST
from services.replica_set import ReplicaSet
from services.valkey import ValkeyServer
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.harness.deployment import Deployment


class ReplicatedDeployment(Deployment):
    """A replicated deployment. All connections to the primary, and the replication's ``link``, use proxies."""

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
        """Promote the replica, and redirect all proxies to it except the proxy of clients."""
        [replica] = self.set.replicas
        self.set.promote(replica)
        self.server = replica
        for proxy in self.proxies[1:]:
            proxy.target = _address(replica)
            proxy.cut()

    def rejoin(self, old: ValkeyServer) -> None:
        """Redirect the clients to the new primary, and let the old primary follow it as a replica."""
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
