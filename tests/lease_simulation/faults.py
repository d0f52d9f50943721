"""The faults of the simulated hosts and servers, and runs with random faults."""

from dataclasses import dataclass
from random import Random

from tests.lease_simulation.process import SimulatedProcess
from tests.lease_simulation.server import SimulatedServer, State
from tests.lease_simulation.world import World
from tickwheel.election.lease_row import EVENT_PROCESS, LAST_RESORT
from tickwheel.election.unclaimed_shards import UNCLAIMED_MS

HOUR_MS = 3.6e6
# When the faults end in a run of members of the last resort.
_LAST_FAULT_MS = 60_000.0
KINDS = (
    *("kill", "pause", "pause", "cut off", "cut off", "fail over", "fail over", "restart", "lose everything"),
    *("step clock", "step clock", "freeze", "join", "join last resort", "end", "pause again and again", "hang", "hang"),
)


def kill(world: World, process: SimulatedProcess) -> None:
    world.mark_fault()
    process.is_alive = False


def end(world: World, process: SimulatedProcess) -> None:
    """SIGTERM: the process hands its shards over, and ends."""
    world.mark_fault()
    process.end()
    world.events.after(1_500, kill, world, process)


def pause(world: World, process: SimulatedProcess, ms: float) -> None:
    world.mark_fault()
    process.paused_until = world.events.now + ms
    world.events.after(ms, _be_well, world, process)


def cut_off(world: World, process: SimulatedProcess, ms: float) -> None:
    world.mark_fault()
    process.is_cut_off = True
    world.events.after(ms, _reconnect, world, process)


def hang(world: World, process: SimulatedProcess, n: int, ms: float) -> None:
    """The loop of a shard works without end, while the rest of its process runs."""
    world.mark_fault()
    process.hangs_until[n] = world.events.now + ms
    process.wake_loop(n)
    world.events.after(ms, world.mark_fault)


def step_clock(world: World, ms: float) -> None:
    world.mark_fault()
    world.server.clock_offset += ms


def freeze(world: World, ms: float) -> None:
    world.mark_fault()
    world.server.frozen_until = world.events.now + ms
    world.events.after(ms, world.mark_fault)


def restart(world: World, lost_ms: float, down_ms: float, state: State | None = None) -> None:
    """The server restarts with its state of ``lost_ms`` ago, or with ``state``."""
    if world.server.is_up:
        world.mark_fault()
        old = world.server
        old.is_up = False
        _start(world, state or old.state_at(world.events.now - lost_ms), old.clock_offset, down_ms)


def fail_over(world: World, lag_ms: float, down_ms: float, split_ms: float, skew_ms: float) -> None:
    """A replica that lags takes over. The old server still serves its connections for ``split_ms``."""
    if world.server.is_up:
        world.mark_fault()
        old = world.server
        if world.waits_for_replicas:
            lag_ms = min(lag_ms, world.replica_lag_ms)
        state = old.state_at(world.events.now - lag_ms)
        if split_ms:
            world.events.after(split_ms, setattr, old, "is_up", False)
        else:
            old.is_up = False
        _start(world, state, old.clock_offset + skew_ms, 0 if split_ms else down_ms)


def random_fault(world: World) -> None:
    """Let one fault happen, unless it would leave no process."""
    random = world.events.random
    staying = [process for process in world.processes if process.is_alive and process.leaves_at is None]
    process = random.choice(staying) if staying else None
    kind = random.choice(KINDS)
    if kind == "join" and len(staying) < 6:
        world.join(EVENT_PROCESS)
    elif kind == "join last resort" and len(staying) < 6:
        world.join(LAST_RESORT)
    elif kind == "fail over":
        lag = random.choice((0, 50, 500, random.uniform(0, 5_000)))
        split = random.choice((0, 0, random.uniform(500, 9_000)))
        skew = random.choice((0, 0, 1_500, -1_500, HOUR_MS, -HOUR_MS))
        fail_over(world, lag, random.uniform(100, 3_000), split, skew)
    elif kind == "restart":
        restart(world, random.uniform(0, 1_000), random.uniform(100, 3_000))
    elif kind == "lose everything" and random.random() < 0.4:
        restart(world, 0, random.uniform(100, 3_000), world.empty)
    elif kind == "step clock":
        step_clock(world, random.choice((HOUR_MS, -HOUR_MS, 5_000, -5_000, 900, -900)))
    elif kind == "freeze":
        freeze(world, random.uniform(300, 9_000))
    elif process is not None:
        _fault_of_process(world, random, kind, process, len(staying))


def _fault_of_process(world: World, random: Random, kind: str, process: SimulatedProcess, staying: int) -> None:
    if kind == "kill" and staying > 1:
        kill(world, process)
        world.events.after(random.uniform(100, 12_000), world.join, process.rank)
    elif kind == "end" and staying > 1:
        end(world, process)
    elif kind == "pause":
        pause(world, process, random.uniform(300, 16_000))
    elif kind == "cut off":
        cut_off(world, process, random.uniform(300, 14_000))
    elif kind == "hang":
        hang(world, process, random.randrange(world.shards), random.uniform(1_000, 20_000))
    elif kind == "pause again and again":
        for n in range(3):
            world.events.after(7_000 * n, _pause_if_alive, world, process, random.uniform(3_500, 6_000))


@dataclass(frozen=True)
class Result:
    """What a run has found: each kind of violation with an example, and the number of changes of holders."""

    seed: int
    found: dict[str, tuple[float, str]]
    changes: int
    claims: int


def run_with_random_faults(seed: int, mutants: frozenset[str] = frozenset()) -> Result:
    """Run a random namespace with 2 to 9 random faults, and check it."""
    random = Random(seed * 7_919 + 1)
    ranks = [EVENT_PROCESS] * random.randint(1, 4) + [LAST_RESORT] * random.choice((0, 0, 1, 2))
    world = World(
        seed,
        ranks=ranks if len(ranks) > 1 else [*ranks, EVENT_PROCESS],
        shards=random.choice((1, 2, 3, 4, 6, 8, 16)),
        mutants=mutants,
        noise=random.choice((0.2, 1, 3)),
        waits_for_replicas=random.random() < 0.3,
    )
    for _ in range(random.randint(2, 9)):
        world.events.after(random.uniform(4_000, 60_000), random_fault, world)
    world.run().check_end()
    return Result(seed, world.examples, len(world.changes), world.calls["claim"])


def run_of_the_last_resort(seed: int) -> Result:
    """Run a new namespace with members of the last resort alone, and check it.

    One of them stays. Another one restarts every few seconds, others come and go, and the server is out of reach again
    and again, but not most of the time. So all shards must have been claimed after three times the time in which they
    are left to event processes.
    """
    random = Random(seed * 104_729 + 1)
    world = World(seed, ranks=[LAST_RESORT], shards=random.choice((1, 2, 4, 16)), noise=random.choice((0, 1)))
    world.events.after(1_000, _restart_member, world)
    at = 1_000.0
    while at < _LAST_FAULT_MS:
        world.events.after(at, _fault_of_the_last_resort, world)
        at += random.uniform(4_000, 8_000)

    def check() -> None:
        if not all(shard.fence for shard in world.server.state.shards):
            world.report("a new namespace is not driven")

    world.events.after(3 * UNCLAIMED_MS, check)
    world.run().check_end()
    return Result(seed, world.examples, len(world.changes), world.calls["claim"])


def _restart_member(world: World) -> None:
    """Let a member join and soon end, again and again."""
    random = world.events.random
    if world.events.now < _LAST_FAULT_MS:
        world.join(LAST_RESORT)
        ends_after = random.uniform(1_500, 5_000)
        world.events.after(ends_after, end, world, world.processes[-1])
        world.events.after(ends_after + random.uniform(500, 3_000), _restart_member, world)


def _fault_of_the_last_resort(world: World) -> None:
    random = world.events.random
    first, *others = (process for process in world.processes if process.is_alive and process.leaves_at is None)
    kind = random.choice(("join", "join", "end", "kill", "freeze", "freeze", "cut off", "restart"))
    if kind == "freeze":
        freeze(world, random.uniform(1_100, 2_000))
    elif kind == "cut off":
        cut_off(world, random.choice((first, *others)), random.uniform(1_100, 2_500))
    elif kind == "restart":
        restart(world, random.uniform(0, 500), random.uniform(100, 1_500))
    elif kind == "join" or not others:
        world.join(LAST_RESORT)
    else:
        {"end": end, "kill": kill}[kind](world, random.choice(others))


def _start(world: World, state: State, clock_offset: float, down_ms: float) -> None:
    def start() -> None:
        world.mark_fault()
        world.server = SimulatedServer(world, state, clock_offset)

    if down_ms:
        world.events.after(down_ms, start)
    else:
        start()


def _be_well(world: World, process: SimulatedProcess) -> None:
    world.mark_fault()
    process.well_since = world.events.now


def _reconnect(world: World, process: SimulatedProcess) -> None:
    process.is_cut_off = False
    _be_well(world, process)


def _pause_if_alive(world: World, process: SimulatedProcess, ms: float) -> None:
    if process.is_alive:
        pause(world, process, ms)
