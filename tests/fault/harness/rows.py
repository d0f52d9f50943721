"""The rows of the table of faults: the deployment, the planned faults, and the allowed time of recovery of each."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from tests.fault.harness.load import Load
from tests.fault.harness.plan import Fault, RunPlan

# The maximum lateness without any stop, on a busy machine too. A takeover after a session of 4 s takes longer.
_UNDISTURBED_MS = 3_000
# The maximum lateness after one lost session.
_ONE_SESSION_MS = 4_000 + _UNDISTURBED_MS
# For a long fault without effect on promotion: only ``late_max_ms`` is checked.
_LONG_S = 3_600.0

Planned = Callable[[random.Random, float], tuple[Fault, ...]]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table of faults.

    recovers_s    maximum time from a fault (or its end) until all messages are promoted in time
    late_p99_ms   maximum of the 99th percentile of the lateness; 0 is no limit
    late_max_ms   maximum lateness; 0 is no limit
    place         kind of deployment
    proxied       whether all connections use proxies
    faked         the wrong clock: "server" or "drivers" for steps, "drivers' rate" for a drift
    after         the test on the data at the end of the run
    zookeepers    number of ZooKeeper servers; 0 for lock files, or for an election by lease
    by_lease      whether the drivers elect leaders by lease
    by_workers    whether workers drive as a last resort, by lease, because there is no event process
    elects        whether the fault may cause another election
    relayed       whether the history is relayed to Kafka
    soak_seconds  length of the load in a soak
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
    by_lease: bool = False
    by_workers: bool = False
    elects: bool = True
    relayed: bool = False
    soak_seconds: float = 0.0
    load: dict[str, Any] | None = None


def plan(name: str, seed: int, seconds: float | None = None, rate: int | None = None, *, soak: bool = False) -> RunPlan:
    """Return the plan of a run of this row with this seed."""
    row, chance = ROWS[name], random.Random(f"{name}/{seed}")
    load_fields: dict[str, Any] = {"seed": seed, "seconds": seconds or (soak and row.soak_seconds) or row.seconds} | (
        row.load or {}
    )
    if rate is not None:
        load_fields["rate"] = rate
    load = Load(**load_fields)
    return RunPlan(name, seed, load, row.faults(chance, load.seconds))


def _several(kind: str, count: int = 3, lasts: tuple[float, float] = (0.0, 0.0), amount: float = 0.0) -> Planned:
    """Plan ``count`` faults of one kind during the run, each after the end of the previous fault."""

    def planned(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
        room = (seconds - 1) / count
        faults = []
        for n in range(count):
            duration = min(chance.uniform(*lasts), max(room - 0.5, lasts[0]))
            at = 1 + n * room + chance.uniform(0, max(room - duration - 0.5, 0))
            faults.append(Fault(kind, round(at, 3), round(duration, 3), chance.randrange(8), amount))
        return tuple(faults)

    return planned


def _forward_and_back(kind: str, lasts: tuple[float, float]) -> Planned:
    """Plan one forward and one backward step of the clock, in random order. The amount of a step is in hours."""

    def planned(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
        room = (seconds - 1) / 2
        steps = chance.sample([1.0, -1.0], 2)
        return tuple(
            # The operator takes 2.5 s to correct the clock.
            Fault(kind, round(1 + n * room, 3), round(min(chance.uniform(*lasts), room - 2.5), 3), n, step)
            for n, step in enumerate(steps)
        )

    return planned


# A driver that ends without a hand-over is replaced within 1.25 leases of 4 s and a second. Its messages are in time
# again a second later.
_BY_LEASE_S = 7.0


def _one_after_the_other(lasts: dict[str, tuple[float, float]]) -> Planned:
    """Plan a fault of each kind, in random order, each after the recovery from the last one.

    ``lasts`` are the minimum and maximum duration of each kind.
    """

    def planned(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
        kinds = chance.sample([*lasts], len(lasts))
        room = (seconds - 1) / len(kinds)
        return tuple(
            Fault(kind, round(1 + n * room, 3), round(chance.uniform(*lasts[kind]), 3), chance.randrange(8))
            for n, kind in enumerate(kinds)
        )

    return planned


def _stops_in_turn(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
    """Plan a SIGTERM for each driver in turn, twice, each after the process that replaces the last one has a share."""
    room = (seconds - 1) / 4
    return tuple(Fault("stop_driver", round(1 + n * room + chance.uniform(0, 1), 3), 0.0, n) for n in range(4))


# Kinds for two faults at once: minimum and maximum duration, and targets. The two need different targets.
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
    """Plan two faults at once, of different kinds and with different targets."""
    fitting = [(a, b) for a, b in permutations(_AT_ONCE, 2) if not _AT_ONCE[a][1] & _AT_ONCE[b][1]]
    at, faults = chance.uniform(1.5, 3), []
    for n, kind in enumerate(chance.choice(fitting)):
        lasts, _ = _AT_ONCE[kind]
        begins = at + n * chance.uniform(0, 0.8)
        faults.append(Fault(kind, round(begins, 3), round(chance.uniform(*lasts), 3), chance.randrange(8), 0.02))
    return tuple(faults)


def _rolling(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
    """Plan a restart of every process in turn, like during an upgrade."""
    order = ["stop_driver", "stop_driver", "stop_server", "stop_worker", "stop_worker", "stop_worker"]
    order += ["roll_zookeeper", "stop_kafka"]
    chance.shuffle(order)
    pause = (seconds - 1) / len(order)
    whom = [order[:n].count(kind) for n, kind in enumerate(order)]
    return tuple(Fault(kind, round(1 + n * pause, 3), 0.0, whom[n]) for n, kind in enumerate(order))


def _slots(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
    """Plan moves of slots, key by key and whole in turn."""
    faults = _several("move_slot", 4, (0.2, 0.8))(chance, seconds)
    return tuple(replace(fault, amount=float(n % 2)) for n, fault in enumerate(faults))


def _kafka_outage(chance: random.Random, seconds: float) -> tuple[Fault, ...]:
    """Plan an outage of Kafka for the whole load except its beginning and end."""
    return (Fault("kill_kafka", round(chance.uniform(1, 4), 3), max(seconds - 8, 2.0)),)


def _drift(kind: str) -> Planned:
    """Plan a drift of a clock until the end of the load."""

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
        "event process cut off from ZooKeeper only",
        _several("cut_off_from_zookeeper", 1, (6, 9)),
        recovers_s=6,
        seconds=12,
        zookeepers=1,
    ),
    "F7": Row("event process cut off from the server", _several("stall_drivers", 1, (2, 6)), proxied=True),
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
        # The node time-out and three seconds more.
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
    "F20": Row(
        "clock steps of one hour, forward and back", _forward_and_back("step_clock", (2, 5)), seconds=16, faked="server"
    ),
    "F21": Row(
        "Kafka killed, then restarted",
        _kafka_outage,
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
        # One shard, so that all transitions in flight are of one relay.
        load={"shards": 1},
    ),
    "F20E": Row(
        "clock steps of one hour, forward and back, on the event processes' host",
        _forward_and_back("step_drivers_clock", (3, 5)),
        seconds=18,
        # One start with a wrong clock, and an operator who accepts the server's clock after two seconds.
        recovers_s=15,
        faked="drivers",
        # Under libfaketime, switching threads costs several times as much.
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
        "six minutes after all faults: every message ended, nothing is left",
        lambda chance, s: _several("kill_server", 1)(chance, s) + _several("kill_driver", 1)(chance, s),
        faked="server",
        after="let_retention_pass",
    ),
    "F31": Row(
        "event processes killed, paused past their lease and cut off from the server, election by lease",
        _one_after_the_other({"kill_driver": (0, 0), "pause_driver": (6, 7.5), "cut_off_from_server": (6, 7.5)}),
        recovers_s=_BY_LEASE_S,
        seconds=37,
        by_lease=True,
    ),
    # F8, F9, F11, F12 and F20 with an election in the server that fails. The limits are the same.
    "F32": Row(
        "server killed and restarted, election by lease",
        _several("kill_server", 2, (0, 0.5)),
        recovers_s=5,
        by_lease=True,
    ),
    "F33": Row(
        "server paused, election by lease",
        _several("pause_server", 2, (0.1, 10)),
        recovers_s=5,
        seconds=22,
        by_lease=True,
    ),
    "F34": Row(
        "replica lags, then failover, election by lease",
        _several("fail_over", 1, (0.5, 1.5)),
        place="replicated",
        by_lease=True,
    ),
    # Longer than a lease, so that each primary gets a leader of its own.
    "F35": Row(
        "split brain with a leader on each side, the old primary rejoins, election by lease",
        _several("split_drivers", 1, (6, 8)),
        place="replicated",
        seconds=16,
        by_lease=True,
    ),
    "F36": Row(
        "clock steps of one hour, forward and back, election by lease",
        _forward_and_back("step_clock", (2, 5)),
        seconds=16,
        faked="server",
        by_lease=True,
    ),
    "F37": Row(
        "event processes stopped in turn, election by lease",
        _stops_in_turn,
        # A hand-over stops nothing.
        recovers_s=3,
        late_max_ms=_UNDISTURBED_MS,
        seconds=29,
        by_lease=True,
    ),
    "F38": Row(
        "workers that drive as a last resort killed, with and without their child processes, and stopped",
        _one_after_the_other({"kill_program": (0, 0), "kill_driver": (0, 0), "stop_driver": (0, 0)}),
        recovers_s=_BY_LEASE_S,
        seconds=46,
        by_lease=True,
        by_workers=True,
        # Workers drive a namespace whose history is relayed only if they relay it.
        relayed=True,
    ),
    "R": Row("rolling restart of every service", _rolling, seconds=16, zookeepers=3, relayed=True),
}
