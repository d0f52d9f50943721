"""What an election by lease costs while nothing happens: wake-ups of the processes, and calls to the server."""

import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.harness.measurement import Measurement, Scale
from bench.measurements.large_requests import memory_mb
from services.process import Process, wait_until
from tickwheel import Tickwheel
from tickwheel.redis.url import VARIABLE
from tickwheel.storage.fence import shard_from_client_name
from tickwheel.storage.keys import election_key, shard_key
from tickwheel.testing import PrivateServer

NAMESPACE: Final = "quiet"
# The lease of an election, and the longest that lowers the number of calls in proportion (docs/operations.md).
LEASES_S: Final = (4, 20)
CANDIDATES, SHARDS = 50, 16
IDLE_SHARDS: Final = 64
# Goals: wake-ups a second of one process, and calls a second of all candidates.
WAKE_UPS_BAR, CALLS_BAR = 2, 60
# The number of windows, and the seconds of each. A process checks its namespace every 30 s.
_WINDOWS, _WINDOW_S = 3, 30
# The number of candidates that start at once. If all did, they could need longer than a lease for their first calls.
_AT_ONCE: Final = 4
# The election is quiet if no change was published for this time.
_QUIET_S: Final = 5.0
_DEADLINE_S: Final = 180.0
_EVENTS: Final = ("-m", "tickwheel", "events", "--namespace", NAMESPACE)
# The child of a worker or a service. It does not leave the shards of a new namespace to event processes first.
_LAST_RESORT: Final = ("--namespace", NAMESPACE, "--last-resort", "--at-once")
_CHILD: Final = ("-m", "tickwheel.event_process", *_LAST_RESORT)
_WATCHED: Final = ("-m", "bench.harness.watched_election")


def election_quiet(scale: Scale) -> list[Measurement]:
    """Let one process drive 64 idle shards, while a child of the last resort stands by, and count their wake-ups."""
    shards = scale.size(IDLE_SHARDS, 4)
    with _idle_namespace(shards) as election, ExitStack() as stack:
        arguments = [*_WATCHED, "--namespace", NAMESPACE, "--election", "lease"]
        driver = stack.enter_context(election.start("driver", *arguments))
        election.wait_until_driven(members=1)
        before = election.connections()
        standby = stack.enter_context(election.start("standby", *_WATCHED, *_LAST_RESORT))
        election.wait_until_driven(members=2)
        connections = election.connections() - before
        rates: dict[str, list[dict[str, float]]] = {"driver": [], "standby": []}
        for _ in range(scale.size(_WINDOWS, 1)):
            began = [_read_counts(process) for process in (driver, standby)]
            time.sleep(scale.size(_WINDOW_S, 2))
            for process, counts in zip((driver, standby), began, strict=True):
                rates[process.name].append(_rates(counts, _read_counts(process)))
        memory = memory_mb(standby.pid, "VmRSS")
    drives = f"of a process that drives {shards} idle shards"
    stands_by = "of the child of a worker, which stands by"
    return [
        _rate_row("election_wake_ups", f"wake-ups of the election {drives}", rates["driver"], "wake_ups"),
        _rate_row(
            "election_switches",
            f"voluntary context switches of the election's thread {drives}",
            rates["driver"],
            "election_switches",
        ),
        _rate_row(
            "election_switches_of_process",
            f"voluntary context switches of all threads {drives}, with the waits for the inboxes",
            rates["driver"],
            "switches",
        ),
        _rate_row("election_wake_ups_standby", f"wake-ups of the election {stands_by}", rates["standby"], "wake_ups"),
        _rate_row(
            "election_switches_of_standby",
            f"voluntary context switches of all threads {stands_by}",
            rates["standby"],
            "switches",
        ),
        Measurement(
            "election_connections_standby",
            f"connections to the server {stands_by}",
            "connections",
            [connections],
            None,
            details={"memory_mb": round(memory, 1)},
        ),
    ]


def election_calls(scale: Scale) -> list[Measurement]:
    """Let 50 processes take part in the election of 16 idle shards, and count their calls."""
    rows = []
    for lease_s in scale.sizes(LEASES_S, LEASES_S[0]):
        samples, details = _measure_calls(scale, [*_EVENTS, "--session-timeout", f"{lease_s}s"])
        label = _calls_label(scale, "`tickwheel events`", lease_s)
        bar = CALLS_BAR if lease_s == LEASES_S[0] else None
        rows.append(_calls_row(f"election_calls_{lease_s}s", label, samples, bar, details))
    samples, details = _measure_calls(scale, _CHILD)
    label = _calls_label(scale, "children of workers", LEASES_S[0])
    return [*rows, _calls_row("election_calls_last_resort", label, samples, CALLS_BAR, details)]


@dataclass(frozen=True, slots=True)
class _Calls:
    """What the server has counted until a moment.

    reads    the requests that it has read from all connections; what arrives at once is one
    drivers  the commands of the shards' drivers, which send one at a time: the reads of the inboxes, each of which has
             waited, and the commands on the drivers' other connections
    """

    at: float
    reads: int
    drivers: int


class _IdleElection:
    """The election of a namespace on a private server."""

    def __init__(self, server: PrivateServer, redis: Any, folder: Path, shards: int) -> None:
        self._server = server
        self._redis = redis
        self._folder = folder
        self._clocks = [shard_key(NAMESPACE, shard, "clock") for shard in range(shards)]

    @contextmanager
    def start(self, name: str, *arguments: str) -> Iterator[Process]:
        """Start a Python program, and kill it at the end of the block."""
        environment = {VARIABLE: self._server.url}
        process = Process(name, [sys.executable, *arguments], self._folder, environment=environment, cwd=Path.cwd())
        process.start()
        try:
            yield process
        finally:
            process.kill()

    def wait_for_members(self, count: int) -> None:
        # The rows of the members, and the assignment.
        self._wait_until(lambda: self._redis.hlen(election_key(NAMESPACE)) == count + 1, f"{count} members take part")

    def wait_until_driven(self, members: int) -> None:
        """Wait until these members take part and all shards are driven, and until the election is quiet."""
        self.wait_for_members(members)
        self._wait_until(lambda: all(self._redis.hget(key, "holder") for key in self._clocks), "all shards are driven")
        published, since = self._published(), time.monotonic()
        deadline = since + _DEADLINE_S
        while time.monotonic() - since < _QUIET_S:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the election did not become quiet within {_DEADLINE_S:g} s")
            time.sleep(0.2)
            if (now := self._published()) != published:
                published, since = now, time.monotonic()
        self.wait_for_members(members)

    def connections(self) -> int:
        """Return the number of connections to the server."""
        return len(self._redis.client_list())

    def calls(self) -> _Calls:
        """Read what the server has counted. This is one call itself."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.info("stats")
        pipe.info("commandstats")
        pipe.client_list()
        stats, commands, clients = pipe.execute()
        # The server counts the read of an inbox when the read ends, and perhaps not for its connection.
        of_other_connections = [
            int(client["tot-cmds"])
            for client in clients
            if shard_from_client_name(NAMESPACE, client["name"]) is not None and client["cmd"] != "xread"
        ]
        drivers = _calls_of(commands, "xread") + sum(of_other_connections)
        return _Calls(time.monotonic(), int(stats["total_reads_processed"]), drivers)

    def _published(self) -> int:
        """Return how many changes of the election were published."""
        return _calls_of(self._redis.info("commandstats"), "spublish")

    def _wait_until(self, condition: Callable[[], bool], label: str) -> None:
        wait_until(condition, label, _DEADLINE_S)


def _calls_of(commands: dict[str, dict[str, Any]], name: str) -> int:
    """Return how often clients and scripts have called a command, from the server's statistics."""
    return int(commands.get(f"cmdstat_{name}", {}).get("calls", 0))


@contextmanager
def _idle_namespace(shards: int) -> Iterator[_IdleElection]:
    with PrivateServer() as server, server.client() as redis, tempfile.TemporaryDirectory() as folder:
        with Tickwheel(server.url, namespace=NAMESPACE, shards=shards, drive=False) as tickwheel:
            tickwheel.create_queue("jobs")
        yield _IdleElection(server, redis, Path(folder), shards)


def _measure_calls(scale: Scale, arguments: Sequence[str]) -> tuple[list[float], dict[str, Any]]:
    """Return the calls a second of all candidates in each window, and details."""
    candidates = scale.size(CANDIDATES, 3)
    samples: list[float] = []
    of_drivers: list[float] = []
    with _idle_namespace(scale.size(SHARDS, 2)) as election, ExitStack() as stack:
        processes: list[Process] = []
        for n in range(candidates):
            processes.append(stack.enter_context(election.start(f"candidate-{n}", *arguments)))
            if n % _AT_ONCE == 0:
                election.wait_for_members(n + 1)
        election.wait_until_driven(candidates)
        for _ in range(scale.size(_WINDOWS, 1)):
            began = election.calls()
            time.sleep(scale.size(_WINDOW_S, 2))
            ended = election.calls()
            seconds, drivers = ended.at - began.at, ended.drivers - began.drivers
            # Without the call that has read the last counts.
            samples.append((ended.reads - began.reads - 1 - drivers) / seconds)
            of_drivers.append(drivers / seconds)
        memory = sum(memory_mb(process.pid, "VmRSS") for process in processes)
    details = {
        "calls_of_drivers_per_s": [round(rate, 2) for rate in of_drivers],
        "memory_of_a_candidate_mb": round(memory / candidates, 1),
    }
    return samples, details


def _calls_label(scale: Scale, kind: str, lease_s: int) -> str:
    candidates, shards = scale.size(CANDIDATES, 3), scale.size(SHARDS, 2)
    return f"calls of {candidates} {kind} for the election of {shards} idle shards, with a lease of {lease_s} s"


def _calls_row(name: str, label: str, samples: list[float], bar: float | None, details: dict[str, Any]) -> Measurement:
    return Measurement(name, label, "calls/s", samples, bar, value=max(samples), details=details)


def _rate_row(name: str, label: str, rates: Sequence[dict[str, float]], key: str) -> Measurement:
    """Return a row with the highest rate of all windows. Only wake-ups have a goal."""
    samples = [rate[key] for rate in rates]
    unit, bar = ("wake-ups/s", WAKE_UPS_BAR) if key == "wake_ups" else ("switches/s", None)
    details = {"lease_s": LEASES_S[0], "calls_per_s": [round(rate["calls"], 3) for rate in rates]}
    return Measurement(name, label, unit, samples, bar, value=max(samples), details=details)


def _rates(began: dict[str, float], ended: dict[str, float]) -> dict[str, float]:
    """Return how often a second each event has happened between two reports."""
    seconds = ended["at"] - began["at"]
    return {key: (ended[key] - began[key]) / seconds for key in began if key != "at"}


def _read_counts(process: Process) -> dict[str, float]:
    """Return what a program of `watched_election` has counted so far."""
    before = len(_reports(process))
    process.send_signal(signal.SIGUSR2)
    wait_until(lambda: len(_reports(process)) > before, f"{process.name} reports its counts", _DEADLINE_S)
    counts: dict[str, float] = json.loads(_reports(process)[-1])
    return counts


def _reports(process: Process) -> list[str]:
    return re.findall(r"^counts (\{.*\})\n", process.log, re.MULTILINE)
