"""The time until an event process takes over from a killed one, in an election by lease."""

import os
import socket
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.harness.measurement import Measurement, Scale
from services.process import Process, wait_until
from tickwheel import NewMessage, Tickwheel
from tickwheel.redis.url import VARIABLE
from tickwheel.storage.keys import election_key, shard_key
from tickwheel.storage.record import State
from tickwheel.storage.transition import decode
from tickwheel.testing import PrivateServer

SHARDS = (1, 64)
KILLS = 50
EVERY = timedelta(milliseconds=10)
LEASE_MS = 4_000
# 1.25 leases and a second.
BAR_MS = 1.25 * LEASE_MS + 1_000
_BEFORE_S, _AFTER_S = 1, 7
_DEADLINE_S = 60.0


def lease_takeover(scale: Scale) -> list[Measurement]:
    """Kill one of two event processes while a message is due every 10 ms, on one shard and on 64 shards."""
    kills = scale.size(KILLS, 1)
    with PrivateServer() as server:
        return [
            _worst(shards, [_measure_takeover(server, shards) for _ in range(kills)])
            for shards in scale.sizes(SHARDS, SHARDS[0])
        ]


def _worst(shards: int, samples: list[float]) -> Measurement:
    return Measurement(
        f"lease_takeover_{shards}",
        "time from the kill of an event process until its successor promotes the first message, with an election by"
        f" lease ({shards} {'shard' if shards == 1 else 'shards'})",
        "ms",
        samples,
        BAR_MS,
        value=max(samples),
        details={"shards": shards, "lease_ms": LEASE_MS},
    )


def _measure_takeover(server: PrivateServer, shards: int) -> float:
    namespace = f"bench-{os.urandom(6).hex()}"
    with (
        Tickwheel(server.url, namespace=namespace, shards=shards, history="relay") as tickwheel,
        server.client() as redis,
        tempfile.TemporaryDirectory() as folder,
    ):
        queue = tickwheel.create_queue("jobs")
        command = [sys.executable, "-m", "tickwheel.event_process", "--namespace", namespace, "--election", "lease"]
        leader, other = (
            Process(name, command, Path(folder), environment={VARIABLE: server.url}) for name in ("leader", "other")
        )
        try:
            leader.start()
            wait_until(lambda: len(_led_by(leader, redis, namespace, shards)) == shards, "it leads", _DEADLINE_S)
            other.start()
            # The rows of two members, and the assignment.
            wait_until(lambda: redis.hlen(election_key(namespace)) == 3, "both processes take part", _DEADLINE_S)
            wait_until(lambda: len(_led_by(other, redis, namespace, shards)) == shards // 2, "they share", _DEADLINE_S)
            count = timedelta(seconds=_BEFORE_S + _AFTER_S) // EVERY
            queue.enqueue_many(NewMessage(delay=n * EVERY) for n in range(count))
            some = timedelta(seconds=_BEFORE_S) // EVERY
            wait_until(lambda: queue.counts()["pending"] >= some, "some messages are promoted", _DEADLINE_S)
            theirs = _led_by(leader, redis, namespace, shards)
            leader.kill()
            seconds, micros = redis.time()
            killed_ms = seconds * 1000 + micros // 1000
            wait_until(lambda: queue.counts()["pending"] == count, "all messages are promoted", _DEADLINE_S)
        finally:
            leader.kill()
            other.kill()
        promoted = [time_ms for shard in theirs for time_ms in _promotions(redis, namespace, shard)]
    server.clear(namespace)
    return float(min(time_ms for time_ms in promoted if time_ms > killed_ms) - killed_ms)


def _led_by(process: Process, redis: Any, namespace: str, shards: int) -> list[int]:
    """Return the shards whose last claim is of this process."""
    name = f"{socket.gethostname()}:{process.pid}".encode()
    return [n for n in range(shards) if redis.hget(shard_key(namespace, n, "clock"), "owner") == name]


def _promotions(redis: Any, namespace: str, shard: int) -> list[int]:
    entries = redis.xrange(shard_key(namespace, shard, "events"))
    decoded = (transition for _, entry in entries for transition in decode(entry[b"e"]))
    return [transition.time_ms for transition in decoded if transition.from_state is State.INVISIBLE]
