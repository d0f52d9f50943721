"""The lateness of messages while an event process takes over from a process that was ended or killed."""

import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.harness.measurement import Measurement, Scale
from services.process import Process, wait_until
from services.zookeeper import ZooKeeper
from tickwheel import NewMessage, Tickwheel
from tickwheel.redis.url import VARIABLE
from tickwheel.storage.keys import shard_key
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition, decode
from tickwheel.testing import PrivateServer

SHARDS = 16
EVERY = timedelta(milliseconds=10)
# Goals in ms: the lateness after SIGTERM, the lateness after SIGKILL, the time from SIGTERM until the process has
# handed over, and the time from SIGKILL until a successor promotes (the session time-out of 4 s, and 2 s more).
ENDED_BAR, KILLED_BAR, HANDED_BAR, FIRST_BAR = 1_200, 6_500, 1_000, 6_000
_DEADLINE_S = 60.0

EndProcess = Callable[[Process], None]


@dataclass(frozen=True, slots=True)
class TakeoverTimes:
    """The times of one takeover in ms: the longest lateness, the end of the old process, and the first promotion."""

    latest: float
    gone: float
    first: float


def takeover(scale: Scale) -> list[Measurement]:
    """End one of two event processes, elected by ZooKeeper, while a message is due every 10 ms."""
    runs = scale.size(5, 1)
    with tempfile.TemporaryDirectory() as folder, ZooKeeper(Path(folder)) as zookeeper, PrivateServer() as server:
        ended = [_measure_takeover(zookeeper, server, _terminate, 3) for _ in range(runs)]
        killed = [_measure_takeover(zookeeper, server, Process.kill, 7) for _ in range(runs)]
    return [
        _worst(
            "handover",
            "longest lateness of a message when one of two event processes receives SIGTERM",
            [sample.latest for sample in ended],
            ENDED_BAR,
        ),
        _worst(
            "handover_time",
            "time from SIGTERM until an event process has handed over its shards and exited",
            [sample.gone for sample in ended],
            HANDED_BAR,
        ),
        _worst(
            "takeover",
            "longest lateness of a message when one of two event processes is killed",
            [sample.latest for sample in killed],
            KILLED_BAR,
        ),
        _worst(
            "takeover_first",
            "time from the kill of an event process until its successor promotes the first message",
            [sample.first for sample in killed],
            FIRST_BAR,
        ),
    ]


def _worst(name: str, label: str, samples: list[float], bar: float) -> Measurement:
    return Measurement(name, label, "ms", samples, bar, value=max(samples), details={"shards": SHARDS})


def _measure_takeover(
    zookeeper: ZooKeeper, server: PrivateServer, end_process: EndProcess, seconds: int
) -> TakeoverTimes:
    namespace = f"bench-{os.urandom(6).hex()}"
    with (
        Tickwheel(server.url, namespace=namespace, shards=SHARDS, history="relay") as tickwheel,
        server.client() as redis,
        tempfile.TemporaryDirectory() as folder,
    ):
        queue = tickwheel.create_queue("jobs")
        command = [sys.executable, "-m", "tickwheel.event_process", "--namespace", namespace]
        command += ["--election", f"zk://{zookeeper.hosts}"]
        one, another = (
            Process(name, command, Path(folder), environment={VARIABLE: server.url}) for name in ("one", "another")
        )
        try:
            one.start()
            own = {_owner_name(one)}
            wait_until(lambda: set(_owners(redis, namespace)) == own, "one process drives all shards", _DEADLINE_S)
            another.start()
            both = own | {_owner_name(another)}
            wait_until(lambda: set(_owners(redis, namespace)) == both, "both processes drive shards", _DEADLINE_S)
            count = timedelta(seconds=seconds) // EVERY
            queue.enqueue_many(NewMessage(delay=n * EVERY) for n in range(count))
            some = timedelta(seconds=1) // EVERY
            wait_until(lambda: queue.counts()["pending"] >= some, "some messages are promoted", _DEADLINE_S)
            theirs = [shard for shard, owner in enumerate(_owners(redis, namespace)) if owner in own]
            began, began_at = time.monotonic(), redis.time()
            end_process(one)
            gone = (time.monotonic() - began) * 1e3
            wait_until(lambda: queue.counts()["pending"] == count, "all messages are promoted", _DEADLINE_S)
        finally:
            one.kill()
            another.kill()
        began_ms = began_at[0] * 1000 + began_at[1] // 1000
        late = [promotion for shard in range(SHARDS) for promotion in _promotions(redis, namespace, shard)]
        after = [promotion.time_ms for shard in theirs for promotion in _promotions(redis, namespace, shard)]
    server.clear(namespace)
    first = min(time_ms for time_ms in after if time_ms > began_ms + gone) - began_ms
    return TakeoverTimes(max(promotion.lateness_ms or 0 for promotion in late), gone, first)


def _terminate(process: Process) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(_DEADLINE_S)


def _owner_name(process: Process) -> str:
    return f"{socket.gethostname()}:{process.pid}"


def _owners(redis: Any, namespace: str) -> list[str]:
    """Return the owner of each shard."""
    owners = (redis.hget(shard_key(namespace, shard, "clock"), "owner") for shard in range(SHARDS))
    return [(owner or b"").decode() for owner in owners]


def _promotions(redis: Any, namespace: str, shard: int) -> list[OutboxTransition]:
    entries = redis.xrange(shard_key(namespace, shard, "events"))
    decoded = (transition for _, entry in entries for transition in decode(entry[b"e"]))
    return [transition for transition in decoded if transition.from_state is State.INVISIBLE]
