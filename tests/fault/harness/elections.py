"""The election of a run: lock files of one host, ZooKeeper through proxies, or leases.

The processes that drive are event processes, or workers if the run has no event process.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from services.process import HOST
from services.zookeeper import ZooKeeper
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.harness.deployment import Deployment


class Election(Protocol):
    """The election that the drivers of a run use."""

    @property
    def program(self) -> Sequence[str]:
        """The command of `tickwheel` that the drivers run."""

    @property
    def elected(self) -> str:
        """What the log of a driver contains after it has begun to drive."""

    @property
    def ended(self) -> str:
        """What the log of a driver contains after it has ended in an orderly manner."""

    def arguments(self, driver: str) -> list[str]:
        """Return the options of the program for the process with the name ``driver``."""

    def server_url(self, driver: str, place: Deployment) -> str:
        """Return the URL at which this process reaches the server of the deployment."""

    def close(self) -> None:
        """Close all proxies of the election."""


class LockFiles:
    """Lock files. Other files simulate another host, where the lock of a paused process has no effect."""

    program, elected, ended = ("events",), "elected", "ended"

    def __init__(self, folder: Path) -> None:
        self._folder, self._host = folder, 0

    def arguments(self, driver: str) -> list[str]:
        return ["--lock", str(self._folder / f"lock-{self._host}")]

    def server_url(self, driver: str, place: Deployment) -> str:
        return place.driver_url

    def move(self) -> None:
        """Use other lock files for processes that start from now on."""
        self._host += 1

    def close(self) -> None:
        pass


class ZooKeeperElection:
    """ZooKeeper. Each event process has a separate link to each server."""

    program, elected, ended = ("events",), "elected", "ended"

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

    def server_url(self, driver: str, place: Deployment) -> str:
        return place.driver_url

    def close(self) -> None:
        for links in self._links.values():
            for link in links:
                link.close()


class LeaseElection:
    """Leases in the server of the run. Each driver has a link of its own to the server, which a failover redirects."""

    program: Sequence[str] = ("events",)
    elected, ended = "elected", "ended"

    def __init__(self) -> None:
        self._links: dict[str, FlakyProxy] = {}

    def link(self, driver: str) -> FlakyProxy:
        """Return the link of a process that was started."""
        return self._links[driver]

    def arguments(self, driver: str) -> list[str]:
        return ["--election", "lease"]

    def server_url(self, driver: str, place: Deployment) -> str:
        if driver not in self._links:
            self._links[driver] = place.open_link()
        return self._links[driver].url

    def close(self) -> None:
        """Do nothing: the deployment closes the links."""


class LastResort(LeaseElection):
    """Leases of workers that drive because there is no event process."""

    program: Sequence[str] = ("worker", "tests.fault.harness.idle_app:app")
    elected, ended = "this program now drives namespace", "this program no longer drives namespace"

    def arguments(self, driver: str) -> list[str]:
        return ["--drive", "auto"]
