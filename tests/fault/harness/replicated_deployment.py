"""A primary and a replica that confirms every call. The faults decide which server is the primary."""

from collections.abc import Collection
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

    def fail_over(self, behind: Collection[FlakyProxy] = ()) -> None:
        """Promote the replica, and redirect all proxies and links to it except the proxy of clients and ``behind``."""
        [replica] = self.set.replicas
        self.set.promote(replica)
        self.server = replica
        for proxy in [*self.proxies[1:], *self.driver_links]:
            if proxy not in behind:
                self._redirect(proxy)

    def rejoin(self, old: ValkeyServer, behind: Collection[FlakyProxy] = ()) -> None:
        """Let the old primary follow the new one as a replica, and redirect the clients and ``behind``."""
        self.link.target = _address(self.server)
        self.link.go_on()
        self.link.cut()
        if not old.is_running:
            old.start()
        self.set.follow(old, (HOST, self.link.port))
        for proxy in (self.proxies[0], *behind):
            self._redirect(proxy)

    def _redirect(self, proxy: FlakyProxy) -> None:
        """Let the proxy lead to the present primary."""
        proxy.target = _address(self.server)
        proxy.cut()

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
