"""The wheel in memory and in Redis loses no timer, fires none early and leaves none behind, under any interruption."""

import os
import random
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.property.wheel_mutants import MUTANTS
from tests.property.wheel_namespace import WheelNamespace
from tests.property.wheel_simulator import Process, Simulation
from tests.support.soak import IN_SOAK
from tickwheel.doctor.slots_in_use import SLOT_MS, SlotsInUse, read_slots
from tickwheel.driver import filing, firing, inbox_buffer, shard_driver
from tickwheel.driver.commands import Command, ReadStream
from tickwheel.driver.shard_driver import ShardDriver
from tickwheel.storage.keys import shard_key
from tickwheel.storage.scripts import Call
from tickwheel.storage.wheel_levels import LOWEST, length, number, serve_time, start
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.property

STEPS = 1_500
# Seeds that have found a bug.
KEPT = [0, 11, 15, 33, 52]
# A slice in `make test`, all in `make soak`.
NEW = range(1_000, 1_012 if IN_SOAK else 1_006)
SPOILED, TINY = (6, 5) if IN_SOAK else (3, 3)
MANY = 500 * int(os.environ.get("TICKWHEEL_SOAK", "1"))
DAY_MS = 86_400_000


@pytest.fixture
def world(tickwheel_server: PrivateServer) -> Iterator[WheelNamespace]:
    with WheelNamespace(tickwheel_server, seed=0) as world:
        yield world


@pytest.mark.parametrize("seed", [*KEPT, *NEW])
def test_no_message_is_lost_or_early_or_left_behind(tickwheel_server: PrivateServer, seed: int) -> None:
    with WheelNamespace(tickwheel_server, seed) as world:
        Simulation(world).run(STEPS)


@pytest.mark.parametrize("seed", range(SPOILED))
def test_entries_that_no_script_writes_neither_stop_the_wheel_nor_stay_in_the_inbox(
    tickwheel_server: PrivateServer, seed: int
) -> None:
    with WheelNamespace(tickwheel_server, seed) as world:
        Simulation(world, is_spoiled=True).run(STEPS)
        assert world.corrupt_entries > 5


@pytest.mark.parametrize("seed", range(TINY))
def test_the_wheel_is_exact_with_tiny_memory_and_small_portions(
    tickwheel_server: PrivateServer, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = {
        "MEMORY_TIMERS": 12,
        "MEMORY_TIMERS_FROM_SLOTS": 6,
        "UNFILED_TIMERS": 25,
        "SLOT_NAMES": 3,
        "CHUNK_TIMERS": 2,
    }
    tiny |= {"READ_TIMERS": 3, "FILE_TIMERS": 4, "CASCADE_TIMERS": 2, "SLOT_CALLS": 2, "DROP_CALLS": 1}
    for constant, value in tiny.items():
        monkeypatch.setattr(shard_driver, constant, value)
    monkeypatch.setattr(filing, "CHUNK_TIMERS", 2)
    monkeypatch.setattr(inbox_buffer, "HURRY_TIMERS", 15)
    monkeypatch.setattr(firing, "FIRE_BATCH", 2)

    with WheelNamespace(tickwheel_server, seed) as world:
        # Some timers of a large slot stay in Redis while later timers are in memory. Those in Redis may be late.
        Simulation(world, is_punctual=False).run(STEPS)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_no_message_is_lost_or_early_or_left_behind_in_many_runs(tickwheel_server: PrivateServer) -> None:
    # Each run uses new seeds: a failing seed is reported, and is then added to the list above.
    first = random.SystemRandom().randrange(10_000, 1 << 32)
    for seed in range(first, first + MANY):
        with WheelNamespace(tickwheel_server, seed) as world:
            try:
                Simulation(world).run(STEPS)
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_simulation_detects_a_broken_rule(tickwheel_server: PrivateServer, mutant: type[ShardDriver]) -> None:
    for seed in range(30):
        with WheelNamespace(tickwheel_server, seed) as world:
            try:
                Simulation(world, mutant).run(STEPS)
            except AssertionError:
                return
    pytest.fail(f"{mutant.__name__} got through: {mutant.__doc__}")


def test_a_hundred_thousand_timers_of_one_tick_are_fired_in_bounded_calls_at_their_time(
    world: WheelNamespace,
) -> None:
    process = Process(world, ShardDriver, None, 0)
    for _ in range(100):
        world.enqueue([300_000] * 1_000)
    due = world.monotonic + 300_000

    carried_out = run_until(process, world, due - 1)
    assert world.pending() == 0
    assert process.driver._loaded_timers.count == 100_000
    carried_out += run_until(process, world, due + 2)

    assert world.pending() == 100_000
    # Timers are read, filed, cascaded, read again and promoted in chunks of hundreds or thousands, those of the
    # exclusive queue in chunks of 62, and none twice. Each command takes two steps.
    assert 500 < len(carried_out) < 3_000
    run_until(process, world, due + 10_000)
    world.check()
    assert world.left_behind() == {"inbox": 0, "slots": []}


@pytest.mark.parametrize(("in_memory", "promotions"), [(False, 20), (True, 50)], ids=["in slots", "in memory"])
def test_other_duties_run_before_promotion_has_caught_up(
    world: WheelNamespace, in_memory: bool, promotions: int
) -> None:
    process = Process(world, ShardDriver, None, 0)
    world.make_cancelled(50)
    run_until(process, world, world.monotonic + 540_000)
    world.make_leases(50, timedelta(minutes=1))
    for _ in range(20):
        world.enqueue([60_000] * 1_000)
    run_until(process, world, world.monotonic + (58_000 if in_memory else 5_000))
    assert (process.driver._loaded_timers.count >= 20_000) == in_memory
    world.enqueue([60_000] * 100)
    run_until(process, world, world.monotonic + 10)
    # The process stands still until 100 batches are due. Some leases and retentions of the same minute have also ended,
    # and the last timers must be filed.
    world.monotonic += 100_000

    scripts: list[str] = []
    while world.pending() < 20_050:
        command = process.command
        if process.step() and isinstance(command, Call):
            scripts.append(command.script.name)
    assert scripts.count("promote") >= 100
    # A slot is dropped last, after all its timers are answered. A slot in memory has already been cascaded.
    for duty in (
        ("file_timers", "expire", "retire") if in_memory else ("file_timers", "cascade_slot", "expire", "retire")
    ):
        assert scripts[: scripts.index(duty)].count("promote") <= promotions, duty


def test_an_extended_lease_outlives_a_clock_step_that_no_process_has_seen(
    world: WheelNamespace,
) -> None:
    process = Process(world, ShardDriver, None, 0)
    world.make_leases(1, timedelta(seconds=5))
    world.extend_leases(timedelta(minutes=1))
    run_until(process, world, world.monotonic + 4_999)

    world.clock_step = 3_600_000
    carried_out = run_until(process, world, world.monotonic + 10)

    assert "expire" in [command.script.name for command in carried_out if isinstance(command, Call)]
    assert world.pending() == 0


def test_after_days_without_a_driver_promotion_starts_at_once_with_the_oldest_message(world: WheelNamespace) -> None:
    process = Process(world, ShardDriver, None, 0)
    for _ in range(6):
        world.enqueue([world.random.randrange(10_000, 3 * DAY_MS) for _ in range(1_000)])
    run_until(process, world, world.monotonic + 5_000)
    world.monotonic += 3 * DAY_MS

    process = Process(world, ShardDriver, None, 1 << 32)
    before_the_first = 0
    while not (isinstance(process.command, Call) and process.command.script.name == "promote"):
        before_the_first += process.step()
    run_until(process, world, world.monotonic + 3_000)

    # Two steps for each command: claim, inbox, slots; one cascade for each level, and the first slot.
    assert before_the_first < 40
    assert world.pending() == 6_000
    assert world.left_behind() == {"inbox": 0, "slots": []}


@pytest.mark.parametrize("seed", range(6))
def test_the_slots_wait_only_if_no_driver_runs(tickwheel_server: PrivateServer, seed: int) -> None:
    with WheelNamespace(tickwheel_server, seed) as world:
        process = Process(world, ShardDriver, None, 0)
        for _ in range(40):
            world.act()
            run_until(process, world, world.monotonic + world.random.choice([1, 100, 5_000, 300_000, 20_000_000]))
            assert slots_in_use(world).waiting_ms(world.server_ms) < 100
        run_until(process, world, world.monotonic + 3 * inbox_buffer.ROTATE_MS)
        # The driver has stopped, and everything is filed.
        for due in sorted(world.waiting().values()):
            overdue_ms = length(LOWEST) + SLOT_MS + 1
            assert slots_in_use(world).waiting_ms(due + overdue_ms) > SLOT_MS


def test_each_step_of_a_slow_cascade_moves_the_slots(world: WheelNamespace) -> None:
    process = Process(world, ShardDriver, None, 0)
    slot = number(4, world.server_ms) + 2
    for _ in range(5):
        world.enqueue([start(4, slot) - world.server_ms] * 1_000)
    cascaded = world.monotonic + serve_time(4, slot) - world.server_ms
    run_until(process, world, cascaded - 1)

    before, moves = slots_in_use(world), 0
    while (4, slot) in before.slots:
        steps = run_until(process, world, world.monotonic + 5)
        now = slots_in_use(world)
        cascades = [step for step in steps if isinstance(step, Call) and step.script.name == "cascade_slot"]
        assert now.has_moved(before) == bool(cascades)
        before, moves = now, moves + bool(cascades)
    assert moves >= 5


def slots_in_use(world: WheelNamespace) -> SlotsInUse:
    context = world.client._context
    members = world.redis.zrange(shard_key(context.namespace, 0, "slots"), 0, -1)
    slots: SlotsInUse = world.client._run(read_slots(context, 0, members, world.server_ms))
    return slots


def run_until(process: Process, world: WheelNamespace, monotonic_ms: float) -> list[Command]:
    """Step the process until `until`, advance time when it waits, and return the commands that the server executed."""
    carried_out = []
    while world.monotonic < monotonic_ms:
        command = process.command
        if process.step():
            carried_out.append(command)
            continue
        assert isinstance(command, ReadStream)
        assert command.until_ms is not None
        world.monotonic = min(max(command.until_ms, world.monotonic + 0.01), monotonic_ms)
    return carried_out
