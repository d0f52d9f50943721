"""Services that the runs of a campaign share, because they take seconds to start. Each starts on its first use."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from services.kafka import Kafka
from services.zookeeper import ZooKeeper


class SharedServices:
    """Starts shared services. A run repairs a service that it breaks, and uses unique names in it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._zookeepers: dict[int, ZooKeeper] = {}
        self._kafka: Kafka | None = None

    def zookeeper(self, servers: int) -> ZooKeeper:
        """Return a ZooKeeper with this number of servers."""
        if servers not in self._zookeepers:
            self._zookeepers[servers] = self._stack.enter_context(ZooKeeper(self._folder(), servers=servers))
        return self._zookeepers[servers]

    def kafka(self) -> Kafka:
        """Return a Kafka with one broker."""
        if self._kafka is None:
            self._kafka = self._stack.enter_context(Kafka(self._folder()))
        return self._kafka

    def _folder(self) -> Path:
        return Path(self._stack.enter_context(TemporaryDirectory(prefix="tickwheel-fault-")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
