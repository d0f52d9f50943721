"""The queues of a namespace as its home has them, for an event process: by number, and those that have a sink."""

import logging
import threading
from math import inf

from tickwheel.driver.queue_lookup import NamespaceRecreated
from tickwheel.event_process import QueueRef
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations import queues
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import push_config_version
from tickwheel.operations.namespace import fetch_shard_count
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.runtime.time import monotonic_ms

_log = logging.getLogger("tickwheel.driving")


class QueueDirectory:
    """Looks queues up by number at the namespace's home. Safe to use from the threads of all shards."""

    def __init__(self, context: NamespaceContext, io: RedisExecutor, *, has_kafka: bool = False) -> None:
        """``has_broker`` says that there is where sinks hand messages to; without, queues with a sink are told of."""
        self._context = context
        self._io = io
        self._has_kafka = has_kafka
        self._warned_queues: set[str] = set()
        self._read_ms = -inf
        self._lock = threading.Lock()
        self._refs: dict[int, QueueRef] = {}
        self._configs: dict[int, tuple[str, QueueConfig]] = {}

    def lookup(self, number: int) -> QueueRef | None:
        """The queue of this number; read from home where it is not known."""
        ref = self._refs.get(number)
        if ref is None:
            self._reload()
            ref = self._refs.get(number)
        return ref

    def renew(self, number: int, shard: int) -> QueueRef | None:
        """The same, read from home now, with the shard's copy brought up to date."""
        self._reload()
        entry = self._configs.get(number)
        if entry is None:
            return None
        name, config = entry
        self._io.run(push_config_version(self._context, name, config, [shard]))
        return self._refs[number]

    def queues_with_sinks(self, since_ms: float) -> dict[str, QueueConfig]:
        """The queues that have a sink, as home had them at that moment of the monotonic clock or later."""
        with self._lock:
            # All shards hear of a change at once: home is read once for them.
            if self._read_ms < since_ms:
                self._read()
            return {name: config for name, config in self._configs.values() if config.sink is not None}

    def _reload(self) -> None:
        with self._lock:
            self._read()

    def _read(self) -> None:
        began = monotonic_ms()
        shards = self._io.run(fetch_shard_count(self._context))
        if shards is not None and shards != self._context.shards:
            raise NamespaceRecreated(
                f"namespace {self._context.namespace!r} was made anew with {shards} shards, and this event process"
                f" drives {self._context.shards}: start it again"
            )
        configs = self._io.run(queues.list_queues(self._context))
        self._configs = {config.number: (name, config) for name, config in configs.items()}
        self._refs = {
            number: QueueRef(name, config.leader_context(self._context.history))
            for number, (name, config) in self._configs.items()
        }
        self._read_ms = began
        if not self._has_kafka:
            self._warn()

    def _warn(self) -> None:
        for name, config in self._configs.values():
            if config.sink is not None and name not in self._warned_queues:
                self._warned_queues.add(name)
                _log.warning(
                    "queue %s has the sink %s, and this event process has no broker (--kafka): it hands nothing over",
                    *(name, config.sink),
                )
