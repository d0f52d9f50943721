"""The time until an event process takes over from a killed or stopped one, in an election by lease."""

import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from bench.harness.measurement import Measurement, Scale
from services.process import Process, wait_until
from services.stepped_clock import clock_environment, step_clock
from services.valkey import ValkeyServer
from tickwheel import NewMessage, Queue, Tickwheel
from tickwheel.redis.url import VARIABLE
from tickwheel.storage.keys import election_key, shard_key
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition, decode

SHARDS: Final = (1, 64)
KILLS: Final = 50
STOPS: Final = 10
EVERY: Final = timedelta(milliseconds=10)
LEASE_MS: Final = 4_000
# Goals in ms: from a kill until the first promotion (1.25 leases and a second), the lateness after SIGTERM, and from
# SIGTERM until the process has handed over.
KILLED_BAR, LATE_BAR, HANDED_BAR = 1.25 * LEASE_MS + 1_000, 100, 1_000
_STEP_S: Final = 3_600
# For how long messages are due before the end of the process, and after a kill and after SIGTERM.
_BEFORE_S, _AFTER_KILL_S, _AFTER_STOP_S = 1, 7, 2
_DEADLINE_S: Final = 60.0

EndProcess = Callable[[Process], None]


@dataclass(frozen=True, slots=True)
class _TakeoverTimes:
    """The times of one takeover in ms.

    latest  the longest lateness of a message
    gone    from the kill or signal until the process has ended
    first   from the kill until the first message is promoted, in the first of the process's shards
    last    from the kill until a message is promoted in the last of these shards
    """

    latest: float
    gone: float
    first: float
    last: float


class _SteppedServer(ValkeyServer):
    """A server whose clock steps by an hour: forward, back, forward, and so on."""

    def __init__(self, folder: Path) -> None:
        self._clock = folder / "clock"
        self._ahead_s = 0
        super().__init__("valkey", folder, {"appendonly": "no"}, clock_environment(self._clock))

    def step(self) -> bool:
        """Step the clock. Return whether the step was forward. Raises RuntimeError if the clock did not step."""
        self._ahead_s = 0 if self._ahead_s else _STEP_S
        step_clock(self._clock, self._ahead_s)
        seconds, _ = self.call("TIME")
        if abs(int(seconds) - time.time() - self._ahead_s) > 5:
            raise RuntimeError(f"the server's clock reads {seconds}, which is not {self._ahead_s} s ahead of this host")
        return self._ahead_s > 0


def lease_takeover(scale: Scale) -> list[Measurement]:
    """Kill one of two event processes while a message is due every 10 ms, on one shard and on 64 shards."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, ValkeyServer("valkey", Path(folder), {"appendonly": "no"}) as server:
        for shards in scale.sizes(SHARDS, SHARDS[0]):
            times = [_measure(server, shards, Process.kill, _AFTER_KILL_S) for _ in range(scale.size(KILLS, 1))]
            rows.append(_first_promotion(f"lease_takeover_{shards}", shards, times))
            if shards > 1:
                rows.append(
                    _worst(
                        f"lease_takeover_{shards}_all",
                        f"time from the kill of an event process until messages of all {shards} shards are promoted"
                        " again, with an election by lease",
                        [sample.last for sample in times],
                        None,
                        shards,
                    )
                )
    return rows


def lease_takeover_stepped(scale: Scale) -> list[Measurement]:
    """Kill an event process, as in `lease_takeover`, each time soon after a step of the server's clock by an hour."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, _SteppedServer(Path(folder)) as server:
        for shards in scale.sizes(SHARDS, SHARDS[0]):
            times = [_measure(server, shards, Process.kill, _AFTER_KILL_S) for _ in range(scale.size(KILLS, 1))]
            rows.append(_first_promotion(f"lease_takeover_{shards}_stepped", shards, times, stepped=True))
    return rows


def lease_handover(scale: Scale) -> list[Measurement]:
    """End one of two event processes with SIGTERM while a message of its only shard is due every 10 ms."""
    with tempfile.TemporaryDirectory() as folder, ValkeyServer("valkey", Path(folder), {"appendonly": "no"}) as server:
        times = [_measure(server, 1, _terminate, _AFTER_STOP_S) for _ in range(scale.size(STOPS, 1))]
    about = "with an election by lease (1 shard)"
    return [
        _worst(
            "lease_handover",
            f"longest lateness of a message when one of two event processes receives SIGTERM, {about}",
            [sample.latest for sample in times],
            LATE_BAR,
            1,
        ),
        _worst(
            "lease_handover_time",
            f"time from SIGTERM until an event process has handed over its shard and exited, {about}",
            [sample.gone for sample in times],
            HANDED_BAR,
            1,
        ),
    ]


def _first_promotion(name: str, shards: int, times: Sequence[_TakeoverTimes], *, stepped: bool = False) -> Measurement:
    about = f"{shards} {'shard' if shards == 1 else 'shards'}"
    about += ", after a step of the server's clock by an hour" if stepped else ""
    label = (
        "time from the kill of an event process until its successor promotes the first message, with an election by"
        f" lease ({about})"
    )
    return _worst(name, label, [sample.first for sample in times], KILLED_BAR, shards)


def _worst(name: str, label: str, samples: list[float], bar: float | None, shards: int) -> Measurement:
    details = {"shards": shards, "lease_ms": LEASE_MS}
    return Measurement(name, label, "ms", samples, bar, value=max(samples), details=details)


def _terminate(process: Process) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(_DEADLINE_S)


def _measure(server: ValkeyServer, shards: int, end_process: EndProcess, after_s: int) -> _TakeoverTimes:
    namespace = f"bench-{os.urandom(6).hex()}"
    clocks = [shard_key(namespace, shard, "clock") for shard in range(shards)]
    with (
        Tickwheel(server.url, namespace=namespace, shards=shards, history="relay") as tickwheel,
        server.client(decode_responses=False) as redis,
        tempfile.TemporaryDirectory() as folder,
    ):
        queue = tickwheel.create_queue("jobs")
        command = [sys.executable, "-m", "tickwheel.event_process", "--namespace", namespace, "--election", "lease"]
        leader, other = (
            Process(name, command, Path(folder), environment={VARIABLE: server.url}) for name in ("leader", "other")
        )
        try:
            leader.start()
            wait_until(lambda: len(_led_by(leader, redis, clocks)) == shards, "it leads", _DEADLINE_S)
            other.start()
            # The rows of two members, and the assignment.
            wait_until(lambda: redis.hlen(election_key(namespace)) == 3, "both processes take part", _DEADLINE_S)
            wait_until(lambda: len(_led_by(other, redis, clocks)) == shards // 2, "they share", _DEADLINE_S)
            if isinstance(server, _SteppedServer):
                _step_clock(server, queue, redis, clocks, [leader, other])
            before = queue.counts()["pending"]
            count = timedelta(seconds=_BEFORE_S + after_s) // EVERY
            queue.enqueue_many(NewMessage(delay=n * EVERY) for n in range(count))
            early = timedelta(seconds=_BEFORE_S) // EVERY
            wait_until(lambda: queue.counts()["pending"] >= before + early, "messages are promoted", _DEADLINE_S)
            theirs = _led_by(leader, redis, clocks)
            began, (seconds, micros) = time.monotonic(), redis.time()
            end_process(leader)
            gone = (time.monotonic() - began) * 1e3
            wait_until(lambda: queue.counts()["pending"] == before + count, "all messages are promoted", _DEADLINE_S)
        finally:
            leader.kill()
            other.kill()
        promoted = [_promotions(redis, namespace, shard) for shard in range(shards)]
    server.call("FLUSHALL")
    began_ms = seconds * 1_000 + micros // 1_000
    # The first promotion by the successor. A shard may have no message after the end of the process.
    firsts = [min((p.time_ms for p in promoted[n] if p.time_ms > began_ms + gone), default=began_ms) for n in theirs]
    return _TakeoverTimes(
        latest=max(promotion.lateness_ms or 0 for own in promoted for promotion in own),
        gone=gone,
        first=min(time_ms for time_ms in firsts if time_ms > began_ms) - began_ms,
        last=max(firsts) - began_ms,
    )


def _step_clock(
    server: _SteppedServer, queue: Queue, redis: Any, clocks: Sequence[str], processes: Sequence[Process]
) -> None:
    """Step the server's clock by an hour, and wait until all shards promote messages again.

    After a step forward, the clock guard of each shard holds until an operator accepts the step. ``clocks`` are the
    keys of the shards that show this.
    """
    before = queue.counts()["pending"]
    is_forward = server.step()
    # Each shard has several. Their timers make its driver read the server's clock.
    count = 20 * len(clocks)
    queue.enqueue_many(NewMessage(delay=timedelta(milliseconds=500)) for _ in range(count))
    if is_forward:
        wait_until(lambda: all(redis.hexists(key, "held") for key in clocks), "all clock guards hold", _DEADLINE_S)
        for process in processes:
            process.send_signal(signal.SIGUSR1)
    wait_until(lambda: queue.counts()["pending"] == before + count, "all shards promote messages", _DEADLINE_S)


def _led_by(process: Process, redis: Any, clocks: Sequence[str]) -> list[int]:
    """Return the shards whose last claim is of this process."""
    name = f"{socket.gethostname()}:{process.pid}".encode()
    return [shard for shard, clock in enumerate(clocks) if redis.hget(clock, "owner") == name]


def _promotions(redis: Any, namespace: str, shard: int) -> list[OutboxTransition]:
    entries = redis.xrange(shard_key(namespace, shard, "events"))
    decoded = (transition for _, entry in entries for transition in decode(entry[b"e"]))
    return [transition for transition in decoded if transition.from_state is State.INVISIBLE]
