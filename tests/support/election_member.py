"""Members of a ZooKeeper election inside the test's process. They lead the shards that they win, but run no driver."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

from tests.support.wait_until import eventually
from tickwheel.election.shard_state import ZooKeeperLeadership
from tickwheel.election.zookeeper import ZooKeeperElection
from tickwheel.election.zookeeper_session import ZooKeeperSession
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.errors import TickwheelError


class Member:
    """Runs an election loop for each shard, like an event process."""

    def __init__(self, url: ZooKeeperUrl, namespace: str, shards: int, identity: bytes = b"one") -> None:
        self.election = ZooKeeperElection(url, namespace, shards, identity)
        # The errors that ended the loops of the member.
        self.errors: list[TickwheelError] = []
        self.leads: dict[int, ZooKeeperLeadership] = {}
        # The start and the end of every leadership: monotonic time, shard, epoch.
        self.wins: list[tuple[float, int, int]] = []
        self.ends: list[tuple[float, int, int]] = []
        self._stop = threading.Event()
        # A loop sleeps until the election wakes it, like a driver that waits for timers.
        self._woken = [threading.Event() for _ in range(shards)]
        self._threads = [threading.Thread(target=self._run, args=(shard,), daemon=True) for shard in range(shards)]
        for thread in self._threads:
            thread.start()

    @property
    def zookeeper(self) -> KazooClient:
        """The Kazoo client of the member, for tests that break its connection or session."""
        return self.election._session.client

    def epochs(self) -> dict[int, int]:
        return {shard: leadership.epoch for shard, leadership in list(self.leads.items())}

    def leave(self) -> None:
        """Stop like a process that receives SIGTERM."""
        self.election.leave()
        self._stop.set()
        for woken in self._woken:
            woken.set()
        for thread in self._threads:
            thread.join()
        self.election.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _run(self, shard: int) -> None:
        try:
            self._loop(shard)
        except TickwheelError as error:
            self.errors.append(error)

    def _loop(self, shard: int) -> None:
        woken = self._woken[shard]
        while (leadership := self.election.acquire(shard, self._stop, woken.set)) is not None:
            self.wins.append((time.monotonic(), shard, leadership.epoch))
            self.leads[shard] = leadership
            while not (leadership.lost or self._stop.is_set()):
                woken.wait()
            woken.clear()
            del self.leads[shard]
            self.ends.append((time.monotonic(), shard, leadership.epoch))
            leadership.release()


def settle(members: Sequence[Member], shards: int, within: float = 10.0) -> None:
    """Wait until each shard has one leader, and the members' numbers of shards differ by at most one."""

    def even() -> bool:
        loads = [len(member.leads) for member in members]
        led = {shard for member in members for shard in list(member.leads)}
        return sum(loads) == len(led) == shards and max(loads) - min(loads) <= 1

    eventually(even, "each shard is led, evenly", within)


def candidates(client: KazooClient, path: str, shards: int) -> dict[int, list[str]]:
    """Return the candidate nodes of each shard."""
    return {shard: client.get_children(f"{path}/shards/{shard}") for shard in range(shards)}


def delete_nodes(client: KazooClient, path: str) -> None:
    """Delete a node and its descendants, also while members of an election create nodes below it."""

    def is_deleted() -> bool:
        try:
            client.delete(path, recursive=True)
        except NotEmptyError:
            return False
        return True

    eventually(is_deleted, f"{path} is deleted")


def expire(client: KazooClient) -> None:
    """Make the servers end a client's session."""
    end_session(hosts_of(client), client.client_id)


def end_session(hosts: str, session: tuple[int, bytes]) -> None:
    """Make the servers end a session: a second client takes over the session by its id and password, and closes it."""
    thief = KazooClient(hosts=hosts, client_id=session)
    thief.start()
    thief.stop()
    thief.close()


def hosts_of(client: Any) -> str:
    return ",".join(f"{host}:{port}" for host, port in client.hosts)


@contextmanager
def open_session(url: ZooKeeperUrl) -> Iterator[ZooKeeperSession]:
    """Open a session, and wait until it is connected."""
    ensemble = ZooKeeperSession(url, lambda _: None)
    ensemble.open()
    try:
        eventually(lambda: ensemble.client.connected, "it is connected")
        yield ensemble
    finally:
        ensemble.close()
