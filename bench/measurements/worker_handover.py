"""The time until the child of another worker or service drives after SIGTERM to one, in an election by lease."""

import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.harness.measurement import Measurement, Scale
from bench.measurements.lease_takeover import LEASE_MS
from services.process import Process, wait_until
from services.valkey import ValkeyServer
from tickwheel import Tickwheel
from tickwheel.doctor.lease_members import ASSIGNMENT
from tickwheel.redis.url import VARIABLE
from tickwheel.storage.keys import election_key, shard_key

NAMESPACE: Final = "handover"
STOPS: Final = 10
# Goal in ms, as for the hand-over of an event process.
BAR: Final = 1_000
# How often each child writes its row before a hand-over, so that the others know that it lives.
_BEATS: Final = 3
_DEADLINE_S: Final = 60.0
_APP: Final = "bench.no_op.long_task_app:app"
# The drain is longer than a hand-over.
_PROGRAMS: Final = {
    "worker": ("-m", "tickwheel", "worker", _APP, "--drive", "auto", "--drain", "300s"),
    "service": ("-m", "tickwheel", "serve", "--listen", "127.0.0.1:0", "--drive", "auto"),
}
_EVENTS: Final = ("-m", "tickwheel.event_process", "--namespace", NAMESPACE, "--election", "lease")


def lease_handover_last_resort(scale: Scale) -> list[Measurement]:
    """Stop the worker or service whose child drives, while another one stands by. The worker runs a task."""
    return [
        _row("lease_handover_last_resort", "worker", scale.size(STOPS, 1)),
        _row("lease_handover_last_resort_service", "service", scale.size(STOPS, 1)),
    ]


def _row(name: str, kind: str, count: int) -> Measurement:
    with tempfile.TemporaryDirectory() as folder, ValkeyServer("valkey", Path(folder), {"appendonly": "no"}) as server:
        samples = _measure(server, Path(folder), kind, count)
    return Measurement(
        name,
        f"time from SIGTERM to a {kind} whose child drives until the child of another {kind} drives, with an election"
        " by lease (1 shard)",
        "ms",
        samples,
        BAR,
        value=max(samples),
        details={"shards": 1, "lease_ms": LEASE_MS},
    )


def _measure(server: ValkeyServer, folder: Path, kind: str, count: int) -> list[float]:
    """Return the times of several hand-overs in ms. After each, the program that has taken over is stopped next."""
    from bench.no_op import long_task_app

    samples: list[float] = []
    with (
        Tickwheel(server.url, namespace=NAMESPACE, shards=1, drive=False) as tickwheel,
        server.client(decode_responses=False) as redis,
        ExitStack() as stack,
    ):
        long_task_app.app.move(url=server.url, namespace=NAMESPACE, drive=False)
        stack.callback(long_task_app.app.close)
        # The first claim decides the kind of the election. Before this claim, a child would wait for event processes.
        with _program("events", _EVENTS, server, folder):
            wait_until(lambda: _driver(redis) != b"", "the event process drives", _DEADLINE_S)
        queue = tickwheel.queue(long_task_app.QUEUE)
        driver = stack.enter_context(_program(f"{kind}-0", _PROGRAMS[kind], server, folder))
        wait_until(lambda: _driver(redis) != b"", f"the child of the first {kind} drives", _DEADLINE_S)
        for n in range(count):
            end = folder / f"end-{n}"
            if kind == "worker":
                long_task_app.wait_for.now(str(end))
                wait_until(lambda: queue.counts()["running"] == 1, "the task runs", _DEADLINE_S)
            other = stack.enter_context(_program(f"{kind}-{n + 1}", _PROGRAMS[kind], server, folder))
            wait_until(lambda: len(_rows(redis)) == 2, "both children take part", _DEADLINE_S)
            for _ in range(_BEATS):
                _wait_for_beat(redis, _rows(redis))
            samples.append(_hand_over(driver, redis))
            end.touch()
            driver.wait(_DEADLINE_S)
            driver = other
    return samples


def _hand_over(driver: Process, redis: Any) -> float:
    """Stop a program. Return the time until the child of another program drives, in ms."""
    before = _driver(redis)
    began = time.monotonic()
    driver.send_signal(signal.SIGTERM)
    wait_until(lambda: _driver(redis) not in (b"", before), "another child drives", _DEADLINE_S)
    return (time.monotonic() - began) * 1e3


def _program(name: str, arguments: tuple[str, ...], server: ValkeyServer, folder: Path) -> Process:
    environment = {VARIABLE: server.url, "TICKWHEEL_NAMESPACE": NAMESPACE}
    return Process(name, [sys.executable, *arguments], folder, environment=environment, cwd=Path.cwd())


def _driver(redis: Any) -> bytes:
    """Return the name of the process that drives the shard; empty if none does."""
    owner, holder = redis.hmget(shard_key(NAMESPACE, 0, "clock"), "owner", "holder")
    driver: bytes = (owner or b"") if holder else b""
    return driver


def _rows(redis: Any) -> dict[bytes, bytes]:
    """Return the rows of the members of the election."""
    fields: Mapping[bytes, bytes] = redis.hgetall(election_key(NAMESPACE))
    return {member: row for member, row in fields.items() if member != ASSIGNMENT}


def _wait_for_beat(redis: Any, before: Mapping[bytes, bytes]) -> None:
    """Wait until each member has written another row than ``before``."""
    wait_until(lambda: not before.items() & _rows(redis).items(), "each child writes its row", _DEADLINE_S)
