"""Who elects event processes in a run: lock files of one host, or ZooKeeper, reached through proxies."""

from pathlib import Path
from typing import Protocol

from services.process import HOST
from services.zookeeper import ZooKeeper
from tests.fault.flaky_proxy import FlakyProxy


class Election(Protocol):
    """What the event processes of a run are told."""

    def arguments(self, driver: str) -> list[str]:
        """The options of `tickwheel events` for a process; ``driver`` is the place it has in the run."""

    def close(self) -> None:
        """Let go of what it holds."""


class LockFiles:
    """A paused process keeps its lock, so another host is played by other files."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._host = folder, 0

    def arguments(self, driver: str) -> list[str]:
        return ["--lock", str(self._folder / f"lock-{self._host}")]

    def move(self) -> None:
        """Processes that start from now on are on another host."""
        self._host += 1

    def close(self) -> None:
        pass


class ZooKeeperElection:
    """Each event process has a link of its own to each server of ZooKeeper."""

    def __init__(self, zookeeper: ZooKeeper, path: str) -> None:
        self.zookeeper = zookeeper
        self._path = path
        self._links: dict[str, list[FlakyProxy]] = {}

    def links(self, driver: str) -> list[FlakyProxy]:
        """The links of the process that has this place."""
        if driver not in self._links:
            ports = [server.port for server in self.zookeeper.servers]
            self._links[driver] = [FlakyProxy((HOST, port), keeps_requests=False) for port in ports]
        return self._links[driver]

    def arguments(self, driver: str) -> list[str]:
        hosts = ",".join(f"{HOST}:{link.port}" for link in self.links(driver))
        return ["--election", f"zk://{hosts}/{self._path}"]

    def close(self) -> None:
        for links in self._links.values():
            for link in links:
                link.close()
