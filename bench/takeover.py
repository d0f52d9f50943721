"""Another event process follows one that is ended or killed: how late what was due meanwhile came."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.figures import Figure, Scale
from services.zookeeper import ZooKeeper
from tickwheel import NewMessage, Tickwheel, transitions, urls
from tickwheel.keys import shard_key
from tickwheel.testing import PrivateServer

SHARDS = 16
EVERY = timedelta(milliseconds=10)
# In ms: lateness after an end in order and after a kill, and how long the one that ends may take to hand over.
ENDED_BAR, KILLED_BAR, HANDED_BAR = 1_200, 6_500, 1_000
_DEADLINE_S = 60.0


def takeover(scale: Scale) -> list[Figure]:
    """A message is due each 10 ms, two processes drive the shards by an election on ZooKeeper, and one goes."""
    runs = scale.size(5, 1)
    figures = []
    gone_ms: dict[str, list[float]] = {"handover": [], "takeover": []}
    with tempfile.TemporaryDirectory() as folder, ZooKeeper(Path(folder)) as zookeeper, PrivateServer() as server:
        for name, what, go, seconds, bar in (
            ("handover", "lateness at most when one of two event processes ends by SIGTERM", _terminate, 3, ENDED_BAR),
            ("takeover", "lateness at most when one of two event processes is killed", _kill, 7, KILLED_BAR),
        ):
            samples = [_latest_ms(zookeeper, server, go, seconds, gone_ms[name]) for _ in range(runs)]
            figures.append(Figure(name, what, "ms", samples, bar, value=max(samples), details={"shards": SHARDS}))
    handed = gone_ms["handover"]
    what = "from SIGTERM to the end of an event process that has handed over its shards"
    return [*figures, Figure("handover_time", what, "ms", handed, HANDED_BAR, value=max(handed))]


def _latest_ms(
    zookeeper: ZooKeeper,
    server: PrivateServer,
    go: Callable[[subprocess.Popen[bytes]], None],
    seconds: int,
    gone_ms: list[float],
) -> float:
    """How late the latest message was, in ms; how long the one that went took to go is added to ``gone_ms``."""
    namespace = f"bench-{os.urandom(6).hex()}"
    with (
        Tickwheel(server.url, namespace=namespace, shards=SHARDS, history="relay") as tickwheel,
        server.client() as redis,
    ):
        queue = tickwheel.create_queue("jobs")
        one = _start(zookeeper, server, namespace)
        _wait(lambda: _owners(redis, namespace) == {_name(one)}, "it drives all shards")
        another = _start(zookeeper, server, namespace)
        try:
            both = {_name(one), _name(another)}
            _wait(lambda: _owners(redis, namespace) == both, "both drive")
            count = timedelta(seconds=seconds) // EVERY
            queue.enqueue_many(NewMessage(delay=n * EVERY) for n in range(count))
            _wait(lambda: queue.counts()["pending"] >= timedelta(seconds=1) // EVERY, "some are promoted")
            began = time.monotonic()
            go(one)
            gone_ms.append((time.monotonic() - began) * 1e3)
            _wait(lambda: queue.counts()["pending"] == count, "all are promoted")
        finally:
            for process in (one, another):
                process.kill()
                process.wait()
        latest = max(_lateness(redis, namespace))
    server.clear(namespace)
    return latest


def _start(zookeeper: ZooKeeper, server: PrivateServer, namespace: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tickwheel.driving", "--namespace", namespace]
    return subprocess.Popen(
        [*command, "--election", f"zk://{zookeeper.hosts}"],
        env=os.environ | {urls.VARIABLE: server.url},
        stderr=subprocess.DEVNULL,
    )


def _terminate(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _name(process: subprocess.Popen[bytes]) -> str:
    return f"{socket.gethostname()}:{process.pid}"


def _owners(redis: Any, namespace: str) -> set[str]:
    owners = (redis.hget(shard_key(namespace, shard, "clock"), "owner") for shard in range(SHARDS))
    return {(owner or b"").decode() for owner in owners}


def _lateness(redis: Any, namespace: str) -> list[int]:
    entries = [entry for shard in range(SHARDS) for _, entry in redis.xrange(shard_key(namespace, shard, "events"))]
    told = (transition for entry in entries for transition in transitions.decode(entry[b"e"]))
    return [transition.lateness_ms for transition in told if transition.lateness_ms is not None]


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_DEADLINE_S:g} s: {what}")
        time.sleep(0.005)
