"""Single faults: how long a shard has no driver, how often shards change hands, and how many calls the members make."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from tests.lease_simulation import faults
from tests.lease_simulation.events import Call, SimulatedThread
from tests.lease_simulation.process import SimulatedProcess
from tests.lease_simulation.world import LEASE_MS, World
from tickwheel.election.lease_row import EVENT_PROCESS, LAST_RESORT

FAULT_AT_MS = 20_000
WATCHED_MS = 40_000
# How old the state of the replica is that takes over after claims.
_LAG_MS = 1_500
END_MS = 70_000
ELECTION_CALLS = ("attend", "read_claims", "claim", "release")
Fault = Callable[[World, SimulatedProcess], None]


@dataclass(frozen=True)
class Outcome:
    """What followed: ``undriven_ms`` is the longest time of one shard, ``calls_per_s`` counts the calls of all members.

    ``claims_over_members`` counts claims over the claim of a member that is well.
    """

    undriven_ms: float
    changes: int
    calls_per_s: float
    claims_over_members: int
    found: Counter[str]


def _pause_five_times(world: World, leader: SimulatedProcess) -> None:
    for n in range(5):
        world.events.after(8_000 * n, faults.pause, world, leader, 5_200)


def _step_back_and_kill(world: World, leader: SimulatedProcess) -> None:
    faults.step_clock(world, -faults.HOUR_MS)
    faults.kill(world, leader)


def _lose_release(world: World, leader: SimulatedProcess) -> None:
    """A replica takes over that has the assignment of a shard to a new member, but not the release that followed."""
    world.join(EVENT_PROCESS)
    before = [world.server.state]

    def fail_over_after_a_release() -> None:
        state = world.server.state
        if "" in {shard.holder for shard in state.shards}:
            faults.restart(world, 0, 200, before[0])
            return
        before[0] = state
        world.events.after(0.05, fail_over_after_a_release)

    fail_over_after_a_release()


def _lose_claim(world: World, leader: SimulatedProcess) -> None:
    """The leader is killed. A replica takes over that lacks the claims of its successors."""
    faults.kill(world, leader)

    def fail_over() -> None:
        assert world.server.state_at(world.events.now - _LAG_MS).shards[0].holder == leader.name
        faults.fail_over(world, _LAG_MS, 500, 0, 0)

    def fail_over_after_the_claims() -> None:
        if world.server.state.shards[0].holder == leader.name:
            world.events.after(20, fail_over_after_the_claims)
        else:
            # The other shards of the leader have been claimed then, too.
            world.events.after(100, fail_over)

    fail_over_after_the_claims()


def _delay_claim(world: World, leader: SimulatedProcess) -> None:
    """The leader is killed. The first claim of a successor arrives late, when this successor has been replaced, too."""
    faults.kill(world, leader)
    execute = world._execute

    def execute_late(thread: SimulatedThread, operation: int, call: Call) -> None:
        if call.script != "claim":
            execute(thread, operation, call)
            return
        setattr(world, "_execute", execute)  # noqa: B010
        world.events.after(6 * LEASE_MS, execute, thread, operation, call)
        faults.kill(world, thread.process)

    setattr(world, "_execute", execute_late)  # noqa: B010


def crash_of_successor(k: int) -> Fault:
    """Return a fault: the leader is killed, and then its successor, as soon as the server has executed its k-th call.

    The successor is the only other event process.
    """

    def crash(world: World, leader: SimulatedProcess) -> None:
        faults.kill(world, leader)
        [successor] = (process for process in world.processes if process.is_alive and process.rank == EVENT_PROCESS)
        execute, calls = world._execute, count(1)

        def execute_and_crash(thread: SimulatedThread, operation: int, call: Call) -> None:
            execute(thread, operation, call)
            if thread.process is successor and next(calls) == k:
                faults.kill(world, successor)

        setattr(world, "_execute", execute_and_crash)  # noqa: B010

    return crash


# The fault, which may name the leader of shard 0.
FAULTS: dict[str, Fault] = {
    "nothing": lambda world, leader: None,
    "kill": faults.kill,
    "end": faults.end,
    "join": lambda world, leader: world.join(EVENT_PROCESS),
    "join last resort": lambda world, leader: world.join(LAST_RESORT),
    "pause": lambda world, leader: faults.pause(world, leader, 3 * LEASE_MS),
    "pause five times": _pause_five_times,
    "clock forward": lambda world, leader: faults.step_clock(world, faults.HOUR_MS),
    "clock back": lambda world, leader: faults.step_clock(world, -faults.HOUR_MS),
    "clock back and kill": _step_back_and_kill,
    "freeze": lambda world, leader: faults.freeze(world, 6_000),
    "fail over": lambda world, leader: faults.fail_over(world, 2_000, 500, 0, 0),
    "restart": lambda world, leader: faults.restart(world, 1_000, 500),
    "lose everything": lambda world, leader: faults.restart(world, 0, 500, world.empty),
    "lose a release": _lose_release,
    "lose a claim": _lose_claim,
    "delay a claim": _delay_claim,
    "hang": lambda world, leader: faults.hang(world, leader, 0, WATCHED_MS),
}


def run(
    fault: str | Fault,
    seed: int,
    *,
    shards: int = 4,
    ranks: tuple[int, ...] = (EVENT_PROCESS,) * 4,
    has_load: bool = False,
    mutants: frozenset[str] = frozenset(),
) -> Outcome:
    """Let the fault happen after 20 s, and watch the shards for 40 s. No message is late or gets lost by chance.

    ``fault`` is a fault, or the name of one of `FAULTS`.
    """
    inject = FAULTS[fault] if isinstance(fault, str) else fault
    world = World(seed, ranks=[*ranks], shards=shards, mutants=mutants, noise=0, has_load=has_load, end_ms=END_MS)
    begin = FAULT_AT_MS + world.events.random.uniform(0, LEASE_MS / 4)
    before: dict[str, int] = {}
    # For how long each shard without a driver has had none, in ms.
    undriven: dict[int, float] = {}
    longest = 0.0

    def start() -> None:
        before.update({script: world.calls[script] for script in ELECTION_CALLS}, changes=len(world.changes))
        leader = world.drivers()[0]
        inject(world, leader)

    def watch() -> None:
        nonlocal longest, undriven
        drivers = world.drivers()
        undriven = {n: undriven.get(n, 0.0) + 2 for n in range(shards) if n not in drivers}
        longest = max([longest, *undriven.values()])
        if world.events.now < begin + WATCHED_MS:
            world.events.after(2, watch)

    world.events.after(begin, start)
    world.events.after(begin, watch)
    world.run().check_end()
    calls = sum(world.calls[script] - before[script] for script in ELECTION_CALLS)
    seconds = (END_MS - begin) / 1000
    return Outcome(
        longest, len(world.changes) - before["changes"], calls / seconds, world.claims_over_members, world.found
    )
