"""Services that the runs of a campaign share, as they take seconds to start: each is started when first asked for."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from services.kafka import Kafka
from services.zookeeper import ZooKeeper


class SharedServices:
    """A run that breaks one puts it right; what it keeps there has a name of its own."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._zookeepers: dict[int, ZooKeeper] = {}
        self._kafka: Kafka | None = None

    def zookeeper(self, servers: int) -> ZooKeeper:
        """ZooKeeper of so many servers."""
        if servers not in self._zookeepers:
            self._zookeepers[servers] = self._stack.enter_context(ZooKeeper(self._folder(), servers=servers))
        return self._zookeepers[servers]

    def kafka(self) -> Kafka:
        """One broker."""
        if self._kafka is None:
            self._kafka = self._stack.enter_context(Kafka(self._folder()))
        return self._kafka

    def _folder(self) -> Path:
        return Path(self._stack.enter_context(TemporaryDirectory(prefix="tickwheel-fault-")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
