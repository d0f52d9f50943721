"""A simulated event process: the election's thread, and the loop of each shard with a small wheel.

The decisions are those of the product: `LeaseSteps` runs the election's thread, and the loops claim with `LeaseClaims`.
"""

from math import inf
from typing import Any

from tests.lease_simulation.events import Call, ConnectionLost, Fenced, Program, SimulatedThread, Sleep
from tickwheel.election.lease_attendance import Attendance
from tickwheel.election.lease_member import LeaseMember
from tickwheel.election.lease_shards import LeaseLeadership, LeaseShards
from tickwheel.election.lease_steps import LeaseSteps, ReadClaims, ReleaseShards, Wait

# How long a process that ends waits until others take over its shards.
HAND_OVER_MS = 700
# An entry of the inbox is filed after this time, as a loaded timer is then usually promoted.
FILE_AFTER_MS = 1_000
# The longest wait of a loop for its inbox.
IDLE_MS = 2_500


class Connection:
    """A connection to one server. Commands arrive in order."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.last_arrival = 0.0


class SimulatedProcess:
    """One process. Its clock runs up to 1 % faster or slower than those of others."""

    def __init__(self, world: Any, name: str, rank: int, lease_ms: float) -> None:
        self.world = world
        self.name = name
        self.rank = rank
        self.lease_ms = lease_ms
        self.is_alive = True
        self.is_cut_off = False
        self.paused_until = 0.0
        self.leaves_at: float | None = None
        # When the last fault of this process ended.
        self.well_since = world.events.now
        self.hangs_until = [0.0] * world.shards
        # The fence and the server with which each loop drives.
        self.driving: list[tuple[bytes, Any] | None] = [None] * world.shards
        self._drift = world.events.random.uniform(0.99, 1.01)
        random = world.events.random.random
        self.member = LeaseMember(name, world.shards, rank=rank, name=name, lease_ms=lease_ms, random=random)
        self.shards = LeaseShards(name, self._wake_election)
        self.steps: LeaseSteps = world.steps_class(
            self.member, self.shards, lease_ms=lease_ms, clock=self.clock, random=random
        )
        # How often a wait of the election's thread has ended.
        self.wake_ups = 0
        self._queues: dict[int, Any] = {}
        self._has_heard = False
        self._election = self._start(self._run_election())
        self._loops = [self._start(self._run_loop(n)) for n in range(world.shards)]

    def clock(self) -> float:
        """Return the monotonic clock of the host."""
        return float(1_000_000 + self.world.events.now * self._drift)

    def is_well(self) -> bool:
        return self.is_alive and not self.is_cut_off and self.paused_until <= self.world.events.now

    def end(self) -> None:
        """Begin to leave, as after SIGTERM."""
        self.leaves_at = self.world.events.now + HAND_OVER_MS
        self.member.is_leaving = True
        self.shards.close()

    def hear_change(self) -> None:
        self._has_heard = True
        self._wake_election()

    def wake_loop(self, n: int, after: float = 0.0) -> None:
        self._loops[n].wake(after)

    def _start(self, program: Program) -> SimulatedThread:
        thread = SimulatedThread(self.world.events, program, self.world.send, self)
        self.world.events.after(0.01, thread.resume, 0)
        return thread

    def _wake_election(self) -> None:
        # The first loops may wait before the thread runs.
        if hasattr(self, "_election"):
            self._election.wake(0.01)

    def _connect(self) -> Program:
        yield Sleep(1 + self.world.events.random.random(), is_deaf=True)
        if self.is_cut_off or not self.world.server.is_up:
            raise ConnectionLost
        return Connection(self.world.server)

    def _run_election(self) -> Program:
        random, backoff = self.world.events.random, 50.0
        while True:
            try:
                connection = yield from self._connect()
                steps, reply = self.steps.run(), None
                while True:
                    command = steps.send(reply)
                    self._wake_elected_loops()
                    match command:
                        case Wait(until_ms):
                            reply = yield Sleep((until_ms - self.clock()) / self._drift)
                            self.wake_ups += 1
                            if self._has_heard:
                                self._has_heard = False
                                self.steps.on_change()
                        case Attendance():
                            reply = yield Call(connection, "attend", (self.name, command))
                            backoff = 50.0
                        case ReadClaims(shards):
                            reply = yield Call(connection, "read_claims", (shards,))
                        case ReleaseShards(fences):
                            reply = yield Call(connection, "release", (fences,))
            except ConnectionLost:
                yield Sleep(backoff * random.uniform(0.5, 1), is_deaf=True)
                backoff = min(2 * backoff, 1_000)

    def _wake_elected_loops(self) -> None:
        for n, queue in self._queues.items():
            if not queue.empty():
                self._loops[n].wake(0.01)

    def _run_loop(self, n: int) -> Program:
        while True:
            queue = self._queues[n] = self.shards.wait_for(n, lambda: self._loops[n].wake(0.01))
            while queue.empty():
                yield Sleep(inf)
            leadership = queue.get_nowait()
            if leadership is None:
                return
            yield from self._lead(n, leadership)
            self.driving[n] = None
            leadership.release()

    def _lead(self, n: int, leadership: LeaseLeadership) -> Program:
        random, backoff = self.world.events.random, 30.0
        while not leadership.lost:
            try:
                connection = yield from self._connect()
                stored = (yield Call(connection, "read_claims", ([n],)))[n]
                fence = leadership.claims.next_fence(stored)
                if fence is None:
                    return
                claim = self.world.make_claim(connection.server)
                yield Call(connection, "claim", (n, stored.fence, fence, self.name, claim))
                leadership.claims.confirm()
                if self.world.waits_for_replicas:
                    yield Sleep(min(self.world.replica_lag_ms, 1_000), is_deaf=True)
                backoff = 30.0
                self.driving[n] = fence, connection.server
                yield from Wheel(self, n, leadership, connection, fence, claim).run()
                return
            except Fenced:
                self.driving[n] = None
            except ConnectionLost:
                self.driving[n] = None
                yield Sleep(backoff * random.uniform(0.5, 1))
                backoff = min(2 * backoff, 1_000)


class Wheel:
    """Drives a shard over one connection, until the leadership is lost."""

    def __init__(
        self,
        process: SimulatedProcess,
        n: int,
        leadership: LeaseLeadership,
        connection: Connection,
        fence: bytes,
        claim: object,
    ) -> None:
        self._process = process
        self._world = process.world
        self._n = n
        self._leadership = leadership
        self._connection = connection
        self._fence = (fence, claim)
        self._last_read = 0
        # The timers in memory, and those that were answered.
        self._memory: set[tuple[int, float]] = set()
        self._answered: set[tuple[int, float]] = set()
        self._unfiled: list[tuple[int, tuple[int, float], float]] = []
        self._has_read_slots = False

    def run(self) -> Program:
        while not self._leadership.lost:
            yield from self._hang()
            try:
                wait = yield from self._turn()
                leaves_at = self._process.leaves_at
                if leaves_at is not None and self._world.events.now > leaves_at:
                    return
                yield Sleep(wait if leaves_at is None else min(wait, 30))
            except ConnectionLost:
                if not self._world.is_mutant("no new claim"):
                    raise
                yield Sleep(300, is_deaf=True)
                self._connection = yield from self._process._connect()
                _, claim = self._fence
                self._fence = self._fence[0], self._world.on_other_server(claim, self._connection.server)

    def _hang(self) -> Program:
        """Work without end on the host, as a loop with a bug does."""
        until = self._process.hangs_until[self._n]
        if until > self._world.events.now:
            self._leadership.end_wait()
            yield Sleep(until - self._world.events.now, is_deaf=True)
            self._leadership.begin_wait()

    def _turn(self) -> Program:
        world = self._world
        now, entries, slots, outbox = yield self._call("read", self._last_read)
        if not self._has_read_slots:
            self._memory.update(slots)
            self._has_read_slots = True
        for id, timer in entries:
            self._last_read = id
            self._memory.add(timer)
            self._unfiled.append((id, timer, world.events.now))
        due = [timer for timer in self._memory if timer[1] <= now]
        if due:
            done = yield self._call("promote", *self._fence, due)
            self._memory.difference_update(done)
            self._answered.update(done)
        old = [entry for entry in self._unfiled if entry[2] <= world.events.now - FILE_AFTER_MS]
        if old:
            timers = [timer for _, timer, _ in old if timer not in self._answered]
            if world.is_mutant("trims without filing"):
                timers = []
            yield self._call("file", *self._fence, old[-1][0], timers)
            del self._unfiled[: len(old)]
        gone = [timer for timer in slots if timer in self._answered]
        if gone:
            yield self._call("drop", *self._fence, gone)
        if outbox:
            if not world.is_mutant("trims before publishing"):
                world.published.update(event for _, event in outbox)
            yield self._call("trim_outbox", *self._fence, outbox[0][0], outbox[-1][0])
            world.published.update(event for _, event in outbox)
        waits = [timer[1] - now for timer in self._memory] + [IDLE_MS]
        if self._unfiled:
            waits.append(FILE_AFTER_MS + 5 - (world.events.now - self._unfiled[0][2]))
        return max(min(waits), 1)

    def _call(self, script: str, *args: Any) -> Call:
        return Call(self._connection, script, (self._n, *args))
