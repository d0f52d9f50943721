"""Load on a cluster: producers, workers and an event process, and the final check of every message."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from redis.cluster import RedisCluster as Client

from services.redis_cluster import RedisCluster
from tests.fault.event_processes import EventProcessChild
from tests.integration.blocking_aio import Blocking, LoopThread
from tests.support.outbox import read_outbox
from tests.support.wait_until import eventually
from tickwheel import NewMessage, NotDurable, Tickwheel, aio
from tickwheel.doctor import audit
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

SHARDS = 12
PRODUCERS = WORKERS = 2
_BATCH = 5
_DELAYS = (timedelta(0), timedelta(0), timedelta(milliseconds=300), timedelta(seconds=2))
_DRAINED_S = 60.0


class ClusterLoad:
    """Enqueues and completes messages until `end` is called, and records every acknowledged id.

    Calls that raise `NotDurable` are retried. Any other error of a call is a failure.
    """

    def __init__(self, tickwheel: Tickwheel, other: Tickwheel) -> None:
        """The producers use ``tickwheel``, the workers use ``other``."""
        self.added: set[str] = set()
        self.completed: list[str] = []
        self.failures: list[BaseException] = []
        self._queues = tickwheel.create_queue("work", lease=timedelta(seconds=5)), other.queue("work")
        self._producing, self._working = threading.Event(), threading.Event()
        self._producing.set()
        self._working.set()
        roles = [self._produce] * PRODUCERS + [self._work] * WORKERS
        self._threads = [threading.Thread(target=self._record_failure, args=(role, n)) for n, role in enumerate(roles)]
        for thread in self._threads:
            thread.start()

    def wait_for_progress(self) -> None:
        """Wait until more messages were enqueued and completed."""
        added, completed = len(self.added), len(self.completed)
        eventually(
            lambda: self.failures or (len(self.added) > added + 50 and len(self.completed) > completed + 50),
            "messages are enqueued and completed",
            _DRAINED_S,
        )
        assert not self.failures

    def end(self) -> None:
        """Stop the producers, wait until every enqueued message is completed, and stop the workers."""
        self._producing.clear()
        for thread in self._threads[:PRODUCERS]:
            thread.join(_DRAINED_S)
        queue = self._queues[0]
        try:
            eventually(
                lambda: self.failures or not unfinished(queue.counts()), "all messages are completed", _DRAINED_S, 0.1
            )
        finally:
            self._working.clear()
            for thread in self._threads:
                thread.join(_DRAINED_S)
        assert not self.failures, self.failures

    def _record_failure(self, role: Any, n: int) -> None:
        try:
            role(n)
        except BaseException as error:
            self.failures.append(error)

    def _produce(self, n: int) -> None:
        for batch in count():
            if not self._producing.is_set() or self.failures:
                return
            new = [NewMessage(id=f"{n}-{batch}-{i}", delay=_DELAYS[(batch + i) % 4]) for i in range(_BATCH)]
            until_durable(self._queues[0].enqueue_many, new)
            self.added |= {f"{n}-{batch}-{i}" for i in range(_BATCH)}

    def _work(self, n: int) -> None:
        queue = self._queues[1]
        while self._working.is_set() and not self.failures:
            try:
                messages = queue.dequeue(_BATCH, worker=f"w{n}", wait=timedelta(milliseconds=200))
            except NotDurable:
                # No worker has received the leased messages. They are delivered again when their leases expire.
                continue
            for message in messages:
                until_durable(message.complete)
                self.completed.append(message.id)


def until_durable(call: Any, *args: Any) -> None:
    """Retry a call until enough replicas have confirmed it."""
    while True:
        try:
            call(*args)
            return
        except NotDurable:
            pass


def unfinished(counts: dict[str, int]) -> int:
    return counts["invisible"] + counts["pending"] + counts["running"]


@contextmanager
def load(
    cluster: RedisCluster, folder: Path, *, asyncio: bool = False, durability: str = "memory", shards: int = SHARDS
) -> Iterator[ClusterLoad]:
    """Run a load in its own namespace. At the end, drain the queue and check every message and index."""
    namespace = f"load-{os.urandom(4).hex()}"
    settings: dict[str, Any] = {"namespace": namespace, "durability": durability, "timeout": timedelta(seconds=30)}
    loop = LoopThread()
    try:
        with Tickwheel(cluster.url, shards=shards, history="relay", **settings) as tickwheel:
            other: Any = tickwheel
            if asyncio:
                other = Blocking(loop, aio.Tickwheel(cluster.url, **settings))
                other.open()
            with EventProcessChild(cluster.url, namespace, folder / f"{namespace}.lock") as child:
                work = ClusterLoad(tickwheel, other)
                try:
                    work.wait_for_progress()
                    yield work
                finally:
                    work.end()
                assert child.is_running, child.log
                child.stop()
            if asyncio:
                other.close()
            check(tickwheel, cluster, work)
    finally:
        loop.close()


def check(tickwheel: Tickwheel, cluster: RedisCluster, work: ClusterLoad) -> None:
    """Check that each acknowledged message was completed once, that no event is missing, and that all indexes agree."""
    findings = tickwheel._run(audit(tickwheel._context))
    assert not findings, "\n".join(findings)
    with Client.from_url(cluster.nodes[0].url, protocol=2) as client:
        lives: dict[str, list[OutboxTransition]] = {}
        for transition in read_outbox(client, tickwheel._context.namespace, tickwheel._context.shards):
            lives.setdefault(transition.id, []).append(transition)
    assert lives.keys() >= work.added
    for id, life in lives.items():
        assert [transition.version for transition in life] == list(range(1, len(life) + 1)), id
        states = [transition.to_state for transition in life]
        assert states.count(State.COMPLETED) == 1, (id, states)
        assert states[-1] is State.COMPLETED, (id, states)
    assert len(set(work.completed)) == len(work.completed)
    assert set(work.completed) <= lives.keys()
