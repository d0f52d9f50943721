"""The processes that lead the shards of a namespace, by the records of the shards. Also the load of their tests."""

import socket
from datetime import timedelta
from typing import Any

from tests.fault.event_processes import EventProcessChild, fence
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel
from tickwheel.storage.fence import epoch_of
from tickwheel.storage.keys import shard_key


class Owners:
    """The leader of each shard."""

    def __init__(self, tickwheel: Tickwheel, server: Any) -> None:
        self._namespace, self._server = tickwheel._context.namespace, server
        self._shards = tickwheel._context.shards

    def now(self) -> list[str]:
        """Return the name of each shard's leader."""
        return self.read("owner")

    def read(self, field: str) -> list[str]:
        """Return a field of each shard's last claim; empty if the field is missing."""
        keys = [shard_key(self._namespace, shard, "clock") for shard in range(self._shards)]
        return [(self._server.hget(key, field) or b"").decode() for key in keys]

    def fences(self) -> list[bytes | None]:
        return [fence(self._server, self._namespace, shard) for shard in range(self._shards)]

    def epochs(self) -> list[int]:
        return [epoch_of(value) if value else 0 for value in self.fences()]

    def settle(self, *children: EventProcessChild, within: float = 30.0) -> None:
        """Wait until exactly these processes lead all shards, with loads that differ by at most one."""
        names = [f"{socket.gethostname()}:{child.pid}" for child in children]

        def even() -> bool:
            owners = self.now()
            loads = [owners.count(name) for name in names]
            return sum(loads) == self._shards and max(loads) - min(loads) <= 1

        eventually(even, f"{names} lead all shards", within)


class LeaseOwners(Owners):
    """The leader of each shard in an election by lease: a released shard keeps the name of its last leader."""

    def now(self) -> list[str]:
        """Return the name of each shard's leader; empty if the shard was released."""
        return [owner if holder else "" for owner, holder in zip(self.read("owner"), self.read("holder"), strict=True)]


def enqueue(tickwheel: Tickwheel, count: int, delay: timedelta) -> None:
    tickwheel.queue("jobs").enqueue_many(NewMessage(delay=delay) for _ in range(count))


def wait_until_pending(tickwheel: Tickwheel, count: int) -> None:
    eventually(lambda: tickwheel.queue("jobs").counts()["pending"] == count, f"{count} messages are promoted", 60)
