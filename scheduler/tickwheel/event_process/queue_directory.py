"""The queues of a namespace as its home has them, for an event process: by number, and those that have a sink."""

import logging
import threading
from math import inf

from tickwheel.driver.queue_lookup import HomeChanged
from tickwheel.driver.server_clock import monotonic_ms
from tickwheel.event_process import QueueRef
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations import queues
from tickwheel.operations.context import Core
from tickwheel.operations.namespace import shards_now
from tickwheel.redis.blocking_executor import SyncIO

_log = logging.getLogger("tickwheel.driving")


class HomeQueues:
    """Looks queues up by number at the namespace's home. Safe to use from the threads of all shards."""

    def __init__(self, core: Core, io: SyncIO, *, has_broker: bool = False) -> None:
        """``has_broker`` says that there is where sinks hand messages to; without, queues with a sink are told of."""
        self._core = core
        self._io = io
        self._has_broker = has_broker
        self._warned_of: set[str] = set()
        self._read_ms = -inf
        self._lock = threading.Lock()
        self._known: dict[int, QueueRef] = {}
        self._configs: dict[int, tuple[str, QueueConfig]] = {}

    def lookup(self, number: int) -> QueueRef | None:
        """The queue of this number; read from home where it is not known."""
        found = self._known.get(number)
        if found is None:
            self._reload()
            found = self._known.get(number)
        return found

    def renew(self, number: int, shard: int) -> QueueRef | None:
        """The same, read from home now, with the shard's copy brought up to date."""
        self._reload()
        found = self._configs.get(number)
        if found is None:
            return None
        name, config = found
        self._io.run(self._core.adopt(name, config, [shard]))
        return self._known[number]

    def sinks(self, heard_ms: float) -> dict[str, QueueConfig]:
        """The queues that have a sink, as home had them at that moment of the monotonic clock or later."""
        with self._lock:
            # All shards hear of a change at once: home is read once for them.
            if self._read_ms < heard_ms:
                self._read()
            return {name: config for name, config in self._configs.values() if config.sink is not None}

    def _reload(self) -> None:
        with self._lock:
            self._read()

    def _read(self) -> None:
        began = monotonic_ms()
        shards = self._io.run(shards_now(self._core))
        if shards is not None and shards != self._core.shards:
            raise HomeChanged(
                f"namespace {self._core.namespace!r} was made anew with {shards} shards, and this event process"
                f" drives {self._core.shards}: start it again"
            )
        listed = self._io.run(queues.listed(self._core))
        self._configs = {config.number: (name, config) for name, config in listed.items()}
        self._known = {
            number: QueueRef(name, config.leader_context(self._core.history))
            for number, (name, config) in self._configs.items()
        }
        self._read_ms = began
        if not self._has_broker:
            self._warn()

    def _warn(self) -> None:
        for name, config in self._configs.values():
            if config.sink is not None and name not in self._warned_of:
                self._warned_of.add(name)
                _log.warning(
                    "queue %s has the sink %s, and this event process has no broker (--kafka): it hands nothing over",
                    *(name, config.sink),
                )
