"""The election of the event processes of a run: lock files of one host, ZooKeeper through proxies, or leases."""

from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from services.process import HOST
from services.zookeeper import ZooKeeper
from tests.fault.flaky_proxy import FlakyProxy


class Election(Protocol):
    """The election that the event processes of a run use."""

    def arguments(self, driver: str) -> list[str]:
        """Return the options of `tickwheel events` for the process with the name ``driver``."""

    def server_url(self, driver: str, url: str) -> str:
        """Return the URL at which this process reaches the server with this URL."""

    def close(self) -> None:
        """Close all proxies."""


class LockFiles:
    """Lock files. Other files simulate another host, where the lock of a paused process has no effect."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._host = folder, 0

    def arguments(self, driver: str) -> list[str]:
        return ["--lock", str(self._folder / f"lock-{self._host}")]

    def server_url(self, driver: str, url: str) -> str:
        return url

    def move(self) -> None:
        """Use other lock files for processes that start from now on."""
        self._host += 1

    def close(self) -> None:
        pass


class ZooKeeperElection:
    """ZooKeeper. Each event process has a separate link to each server."""

    def __init__(self, zookeeper: ZooKeeper, path: str) -> None:
        self.zookeeper = zookeeper
        self._path = path
        self._links: dict[str, list[FlakyProxy]] = {}

    def links(self, driver: str) -> list[FlakyProxy]:
        """Return the links of a process."""
        if driver not in self._links:
            ports = [server.port for server in self.zookeeper.servers]
            self._links[driver] = [FlakyProxy((HOST, port), keeps_requests=False) for port in ports]
        return self._links[driver]

    def arguments(self, driver: str) -> list[str]:
        hosts = ",".join(f"{HOST}:{link.port}" for link in self.links(driver))
        return ["--election", f"zk://{hosts}/{self._path}"]

    def server_url(self, driver: str, url: str) -> str:
        return url

    def close(self) -> None:
        for links in self._links.values():
            for link in links:
                link.close()


class LeaseElection:
    """Leases in the server of the run. Each event process has a link of its own to the server."""

    def __init__(self) -> None:
        self._links: dict[str, FlakyProxy] = {}

    def link(self, driver: str) -> FlakyProxy:
        """Return the link of a process that was started."""
        return self._links[driver]

    def arguments(self, driver: str) -> list[str]:
        return ["--election", "lease"]

    def server_url(self, driver: str, url: str) -> str:
        if driver not in self._links:
            server = urlsplit(url)
            assert server.hostname is not None
            assert server.port is not None
            self._links[driver] = FlakyProxy((server.hostname, server.port), keeps_requests=False)
        return self._links[driver].url

    def close(self) -> None:
        for link in self._links.values():
            link.close()
