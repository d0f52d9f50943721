"""The rows of the table of faults: where each runs, what it plans from a seed, and how fast it must be over."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from tests.fault.harness.load import Load
from tests.fault.harness.plan import Fault, RunPlan

# What nothing stops is late by no more, on a busy machine either: less than a take-over takes, after a session of 4 s.
_UNDISTURBED_MS = 3_000
# As late as that, after a session that was lost.
_ONE_SESSION_MS = 4_000 + _UNDISTURBED_MS
# A fault that lasts, and disturbs nobody: that none is later than ``late_max_ms`` says all.
_LONG_S = 3_600.0

Planned = Callable[[random.Random, float], tuple[Fault, ...]]


@dataclass(frozen=True, slots=True)
class Row:
    """``recovers_s`` bounds the time from a fault (or its end) to the moment from which all are promoted in time;
    ``late_p99_ms`` what 99 of 100 messages are late by, and ``late_max_ms`` what all are, where they are given.

    ``place`` is the kind of server; ``proxied`` that all reach it through proxies; ``faked`` whose clock is wrong, the
    server's or the drivers', or goes at a wrong rate, the drivers' rate; ``after`` what is done to its data in the end;
    ``zookeepers`` how many servers elect, none being lock files; ``elects`` that others may be elected once a fault has
    begun; ``relayed`` that the history goes to Kafka; ``soak_seconds`` its load's length in a soak.
    """

    title: str
    faults: Planned
    place: str = "single"
    recovers_s: float = 10.0
    late_p99_ms: float = 0.0
    late_max_ms: float = 0.0
    seconds: float = 9.0
    proxied: bool = False
    faked: str = ""
    after: str = ""
    zookeepers: int = 0
    elects: bool = True
    relayed: bool = False
    soak_seconds: float = 0.0
    load: dict[str, Any] | None = None


def plan(name: str, seed: int, seconds: float | None = None, rate: int | None = None, *, soak: bool = False) -> RunPlan:
    """The run of a row and a seed."""
    row, chance = ROWS[name], random.Random(f"{name}/{seed}")
    wanted: dict[str, Any] = {"seed": seed, "seconds": seconds or (soak and row.soak_seconds) or row.seconds} | (
        row.load or {}
    )
    if rate is not None:
        wanted["rate"] = rate
    load = Load(**wanted)
    return RunPlan(name, seed, load, row.faults(chance, load.seconds))


def _several(kind: str, most: int = 3, lasts: tuple[float, float] = (0.0, 0.0), amount: float = 0.0) -> Planned:
    """The same fault some times over the run, each after the one before is over."""

    def planned(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
        room = (seconds - 1) / most
        found = []
        for n in range(most):
            long = min(chance.uniform(*lasts), max(room - 0.5, lasts[0]))
            at = 1 + n * room + chance.uniform(0, max(room - long - 0.5, 0))
            found.append(Fault(kind, round(at, 3), round(long, 3), chance.randrange(8), amount))
        return tuple(found)

    return planned


def _both_ways(kind: str, lasts: tuple[float, float]) -> Planned:
    """A step of the clock forward and one back, in either order; ``amount`` is in hours."""

    def planned(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
        room = (seconds - 1) / 2
        ways = chance.sample([1.0, -1.0], 2)
        return tuple(
            # The operator who puts the clock right takes two seconds, and a half.
            Fault(kind, round(1 + n * room, 3), round(min(chance.uniform(*lasts), room - 2.5), 3), n, way)
            for n, way in enumerate(ways)
        )

    return planned


# Two at once: of what, how long it may last, and what it is done to. Neither may undo the other.
_AT_ONCE: dict[str, tuple[tuple[float, float], set[str]]] = {
    "kill_driver": ((0, 1), {"drivers"}),
    "stop_driver": ((0, 0), {"drivers"}),
    "pause_driver": ((5, 7), {"drivers"}),
    "stall_drivers": ((2, 5), {"drivers", "links"}),
    "kill_server": ((0, 1), {"server"}),
    "stop_server": ((0, 0), {"server"}),
    "pause_server": ((0.5, 4), {"server"}),
    "limit_memory": ((1, 2), {"server"}),
    "lose_replies": ((1, 4), {"links"}),
    "slow_link": ((1, 4), {"links"}),
    "kill_worker": ((0, 0), {"workers"}),
    "stop_worker": ((0, 0), {"workers"}),
    "pause_worker": ((3, 5), {"workers"}),
    "kill_producer": ((0, 0), {"producers"}),
    "burn_cpu": ((2, 5), {"machine"}),
}


def _pair(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
    """Two faults of different kinds that are on at once, done to different things."""
    fitting = [(a, b) for a, b in permutations(_AT_ONCE, 2) if not _AT_ONCE[a][1] & _AT_ONCE[b][1]]
    at, found = chance.uniform(1.5, 3), []
    for n, kind in enumerate(chance.choice(fitting)):
        lasts, _ = _AT_ONCE[kind]
        begins = at + n * chance.uniform(0, 0.8)
        found.append(Fault(kind, round(begins, 3), round(chance.uniform(*lasts), 3), chance.randrange(8), 0.02))
    return tuple(found)


def _rolling(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
    """Every process of every kind is restarted in turn, as an upgrade does."""
    order = ["stop_driver", "stop_driver", "stop_server", "stop_worker", "stop_worker", "stop_worker"]
    order += ["roll_zookeeper", "stop_kafka"]
    chance.shuffle(order)
    pause = (seconds - 1) / len(order)
    whom = [order[:n].count(kind) for n, kind in enumerate(order)]
    return tuple(Fault(kind, round(1 + n * pause, 3), 0.0, whom[n]) for n, kind in enumerate(order))


def _slots(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
    """Slots move key by key and whole, in turn."""
    found = _several("move_slot", 4, (0.2, 0.8))(chance, seconds)
    return tuple(replace(fault, amount=float(n % 2)) for n, fault in enumerate(found))


def _kafka_away(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
    """For all of the load but its beginning and end."""
    return (Fault("kill_kafka", round(chance.uniform(1, 4), 3), max(seconds - 8, 2.0)),)


def _drift(kind: str) -> Planned:
    """Until the end of the load."""

    def planned(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
        return (Fault(kind, 0.5, seconds - 1, chance.randrange(8)),)

    return planned


def _none(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
    return ()


ROWS: dict[str, Row] = {
    "F1": Row("event process killed", _several("kill_driver", 2), recovers_s=6, seconds=14, zookeepers=1),
    "F1L": Row("event process killed, lock file", _several("kill_driver", 3)),
    "F2": Row(
        "event process paused past its session",
        _several("pause_driver", 1, (6, 20)),
        recovers_s=6,
        seconds=22,
        zookeepers=1,
    ),
    "F2L": Row("event process paused, lock file", _several("pause_driver", 1, (5, 20)), seconds=22),
    "F4": Row(
        "one ZooKeeper server killed",
        _several("kill_zookeeper", 1, (1, 2)),
        recovers_s=6,
        late_max_ms=_ONE_SESSION_MS,
        zookeepers=3,
    ),
    "F5": Row(
        "ZooKeeper quorum lost",
        _several("lose_quorum", 1, (30, 30)),
        seconds=32,
        recovers_s=_LONG_S,
        late_max_ms=_UNDISTURBED_MS,
        zookeepers=3,
    ),
    "F6": Row(
        "event process cut from ZooKeeper only",
        _several("cut_off_from_zookeeper", 1, (6, 9)),
        recovers_s=6,
        seconds=12,
        zookeepers=1,
    ),
    "F7": Row("event process cut from the server", _several("stall_drivers", 1, (2, 6)), proxied=True),
    "F8": Row("server killed and restarted", _several("kill_server", 2, (0, 0.5)), recovers_s=5),
    "F9": Row("server paused", _several("pause_server", 2, (0.1, 10)), recovers_s=5, seconds=22),
    "F10": Row("replies lost", _several("lose_replies", 2, (2, 4), 0.03), proxied=True),
    "F11": Row("replica lags, then failover", _several("fail_over", 1, (0.5, 1.5)), place="replicated"),
    "F12": Row("split brain, the old primary rejoins", _several("split", 1, (1, 3)), place="replicated"),
    "F13": Row("slots move under load", _slots, place="cluster", recovers_s=5, load={"shards": 6}),
    "F13F": Row(
        "primary of a cluster killed",
        _several("kill_primary", 1, (5, 6)),
        place="cluster",
        # Its node time-out and three more.
        recovers_s=5,
        seconds=10,
        load={"shards": 6},
    ),
    "F14": Row(
        "worker killed, or paused past its lease",
        lambda chance, s: _several("kill_worker", 2)(chance, s) + _several("pause_worker", 1, (3, 5))(chance, s),
        recovers_s=5,
        late_max_ms=_UNDISTURBED_MS,
    ),
    "F15": Row("poisoned messages", _none, late_max_ms=_UNDISTURBED_MS, load={"poisoned": 2}),
    "F16": Row("memory limit", _several("limit_memory", 2, (1, 2)), recovers_s=5),
    "F17": Row("disk full", _several("fill_disk", 1, (1, 2)), place="small disk"),
    "F18": Row("end of the append-only file cut", _none, seconds=3, after="cut_file"),
    "F19": Row("byte of the append-only file flipped", _none, seconds=3, after="flip_byte"),
    "F20": Row("clock steps of one hour, both ways", _both_ways("step_clock", (2, 5)), seconds=16, faked="server"),
    "F21": Row(
        "Kafka away, then back",
        _kafka_away,
        recovers_s=_LONG_S,
        late_max_ms=_UNDISTURBED_MS,
        relayed=True,
        seconds=68,
        soak_seconds=608,
    ),
    "F22": Row(
        "relay killed between the broker's acknowledgement and the cut",
        _several("kill_relay", 4),
        relayed=True,
        recovers_s=6,
        seconds=10,
        # All that is under way is one relay's.
        load={"shards": 1},
    ),
    "F20E": Row(
        "clock steps of one hour, both ways, on the event processes' host",
        _both_ways("step_drivers_clock", (3, 5)),
        seconds=18,
        # One start under a wrong clock, and an operator who accepts the server's after two seconds.
        recovers_s=15,
        faked="drivers",
        # Threads of a process under libfaketime take turns at several times the cost.
        load={"rate": 200},
    ),
    "F20D": Row(
        "clock drift of 1,000 ppm",
        _drift("drift_server"),
        faked="server",
        seconds=16,
        recovers_s=1,
        late_p99_ms=1_000,
    ),
    "F20ED": Row(
        "clock drift of 1,000 ppm, on the event processes' host", _drift("drift_drivers"), faked="drivers' rate"
    ),
    "F23": Row(
        "slow network, links stopped one by one", _several("slow_link", 2, (3, 4), 0.05), recovers_s=6, proxied=True
    ),
    "F24": Row("processors busy", _several("burn_cpu", 1, (6, 7)), zookeepers=1, elects=False),
    "F29": Row("two faults at once", _pair, proxied=True),
    "F30": Row(
        "all healed, then six minutes pass: every message ends, nothing is left",
        lambda chance, s: _several("kill_server", 1)(chance, s) + _several("kill_driver", 1)(chance, s),
        faked="server",
        after="let_retention_pass",
    ),
    "R": Row("rolling restart of every service", _rolling, seconds=16, zookeepers=3, relayed=True),
}
