"""A seeded simulation of event processes on one shard: any event may happen between two server calls.

A command of a process is sent, executed, and answered in three separate steps. Between the steps, other processes and
clients act, delayed calls arrive, processes crash, and clocks step. Each process reads the time through a real clock
guard.
"""

from dataclasses import dataclass, field
from math import inf
from typing import Any

from tests.property.wheel_namespace import CLOCK, WheelNamespace
from tickwheel.driver.commands import Command, ReadStream
from tickwheel.driver.config import DriverConfig
from tickwheel.driver.inbox_buffer import ROTATE_MS
from tickwheel.driver.server_clock import ServerClock
from tickwheel.driver.shard_driver import ShardDriver
from tickwheel.election.claims import EpochClaims
from tickwheel.errors import Fenced
from tickwheel.storage.script_errors import ScriptError
from tickwheel.storage.scripts import Call

LONGEST_HEALING = 12_000


class Process:
    """An event process: a driver, and the command that it waits for."""

    def __init__(self, world: WheelNamespace, driver_class: type[ShardDriver], epoch: int | None, number: int) -> None:
        self._world = world
        self._driver_class = driver_class
        self._claims = EpochClaims(epoch, number)
        wrong_by = world.random.choice([0, 0, 0, -700, 700])
        self.clock = ServerClock(monotonic=lambda: world.monotonic, wall=lambda: world.true_ms + wrong_by)
        self.alive = True
        self._start()

    def reconnect(self) -> Command | None:
        """Break the connection. Return the command in flight if the server has not executed it yet."""
        under_way = None if self._carried_out or isinstance(self.command, ReadStream) else self.command
        self._start()
        return under_way

    def step(self) -> bool:
        """Let the server execute the command, or the reply arrive. Return False if the process can only wait."""
        if not self._carried_out:
            return self._run_steps()
        self._answer()
        return True

    @property
    def wakes_at(self) -> float | None:
        """The time until which the process waits for the inbox, or None if it does not wait."""
        return self.command.until_ms if isinstance(self.command, ReadStream) else None

    def _start(self) -> None:
        config = DriverConfig(self._world.namespace, 0, self._world.queues, "lockfile", clock_fragment=CLOCK)
        self.driver = self._driver_class(config, self.clock, self._claims)
        self._steps = self.driver.run()
        self._set(next(self._steps))

    def _set(self, command: Command) -> None:
        self.command = command
        self._sent = self._world.monotonic
        self._carried_out = False
        self._reply: Any = None
        self._refusal: ScriptError | None = None

    def _run_steps(self) -> bool:
        try:
            self._reply = self._world.execute(self.command)
        except ScriptError as refusal:
            self._refusal = refusal
        until = self.wakes_at
        if until is not None and not self._reply and until > self._world.monotonic:
            return False
        self._carried_out = True
        return True

    def _answer(self) -> None:
        try:
            if self._refusal is not None:
                self._set(self._steps.throw(self._refusal))
            else:
                self.clock.on_reply(self._sent, self._world.monotonic)
                self._set(self._steps.send(self._reply))
        except Fenced:
            # Like in the event process, only a rejected claim proves that a newer process drives the shard.
            if self.driver.claim_refused:
                self.alive = False
            else:
                self.reconnect()


@dataclass
class Simulation:
    """Some processes and clients of one namespace run for `steps` steps; then faults end and all work must finish."""

    world: WheelNamespace
    driver_class: type[ShardDriver] = ShardDriver
    is_punctual: bool = True
    is_spoiled: bool = False
    """Whether somebody adds entries to the inbox that no script writes."""
    processes: list[Process] = field(default_factory=list)
    delayed: list[Command] = field(default_factory=list)
    started: int = 0

    def run(self, steps: int) -> None:
        happenings = [
            (self._step, 1_000),
            (self.world.act, 110),
            (self._pass_time, 100),
            (self._crash, 10),
            (self._start, 10),
            (self._reconnect, 10),
            (self._delayed_call, 12),
            (self._step_clock, 14),
            (self._accept_clock, 6),
            (self.world.check, 25),
        ]
        if self.is_spoiled:
            happenings.append((self.world.spoil_inbox, 40))
        actions, weights = zip(*happenings, strict=True)
        self._start()
        for _ in range(steps):
            self.world.random.choices(actions, weights)[0]()
        self.heal()

    def heal(self) -> None:
        """Keep one process, and advance time until all work is done."""
        self.world.check()
        self.processes.clear()
        self.delayed.clear()
        self._start()
        [process] = self.processes
        process.clock.guard.accept()
        idle, accepted_at = 0, -inf
        for _ in range(LONGEST_HEALING):
            if process.step():
                continue
            if process.clock.guard.is_holding:
                process.clock.guard.accept()
                accepted_at = self.world.monotonic
            elif self.is_punctual and self.world.monotonic > accepted_at + 3 * ROTATE_MS:
                # Timers that were far in the future before the step was accepted are filed first.
                self.world.check_nothing_is_overdue()
            following = self.world.next_event_ms()
            idle += following is None
            if idle == 5:
                break
            self._sleep(process, following)
        else:
            raise AssertionError("does not come to an end")
        self.world.check()
        assert self.world.left_behind() == {"inbox": 0, "slots": []}
        assert process.driver._loaded_timers.count == 0, "timers left in memory"
        assert process.driver._inbox_buffer.count == 0, "entries left in the buckets"

    def _sleep(self, process: Process, following: int | None) -> None:
        """Sleep until the process wakes; sometimes sleep longer, through a time in which no timer is near."""
        assert process.wakes_at is not None
        wake = process.wakes_at
        if following is not None:
            left = following - self.world.server_ms
            wake = max(
                wake,
                self.world.monotonic + left - self.world.random.choice([0, 3_000, 10_000, 300_000]),
            )
            # Check that the process was in time.
            wake = min(wake, self.world.monotonic + max(left, 0) + 3)
        self.world.monotonic = max(self.world.monotonic + 0.01, wake)

    def _step(self) -> None:
        if self.processes:
            process = self.world.random.choice(self.processes)
            process.step()
            self.world.monotonic += self.world.random.choice([0, 0, 0.1, 0.5, 2])
            if not process.alive:
                self.processes.remove(process)

    def _pass_time(self) -> None:
        lengths = {2: 30, 100: 30, 500: 30, 1_500: 10, 9_000: 4, 200_000: 2, 5 * 86_400_000: 1}
        [longest] = self.world.random.choices([*lengths], [*lengths.values()])
        self.world.monotonic += self.world.random.uniform(0, longest)

    def _crash(self) -> None:
        if self.processes:
            self.processes.pop(self.world.random.randrange(len(self.processes)))

    def _start(self) -> None:
        if len(self.processes) < 3:
            self.started += 1
            # Some claim the epoch of another process, as with a lock file on each of two hosts.
            number = self.world.random.randrange(1_000) << 32
            self.processes.append(Process(self.world, self.driver_class, None, number))

    def _reconnect(self) -> None:
        if self.processes:
            under_way = self.world.random.choice(self.processes).reconnect()
            if under_way is not None:
                self.delayed.append(under_way)

    def _delayed_call(self) -> None:
        if self.delayed:
            command = self.delayed.pop(self.world.random.randrange(len(self.delayed)))
            if isinstance(command, Call):
                try:
                    self.world.execute(command)
                except ScriptError as refusal:
                    if refusal.code != "FENCED":
                        raise

    def _step_clock(self) -> None:
        steps = [0, 0, -1, 1, -40, 40, -900, 900, -5_000, 5_000, 3_600_000]
        back = self.world.random.random() < 0.5
        # A small step back makes a leader fire too early.
        self.world.clock_step = self.world.clock_step - 3_000 if back else self.world.random.choice(steps)

    def _accept_clock(self) -> None:
        for process in self.processes:
            process.clock.accept()
