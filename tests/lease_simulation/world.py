"""The simulated namespace: its server, its processes, the network between them, the load and the checks."""

from collections import Counter
from functools import lru_cache
from itertools import count
from typing import Any

from tests.lease_simulation.events import Call, ConnectionLost, Events, Fenced, SimulatedThread
from tests.lease_simulation.process import SimulatedProcess
from tests.lease_simulation.server import SimulatedServer, State, StoredShard
from tickwheel.election.lease_row import EVENT_PROCESS, Row
from tickwheel.election.lease_steps import LeaseSteps
from tickwheel.election.unclaimed_shards import UNCLAIMED_MS

LEASE_MS = 4_000
CALL_TIMEOUT_MS = 2_000
# The longest time in which a shard may have no driver although a process is well, even if messages get lost.
RECOVERY_MS = 3 * LEASE_MS
# No message is later than this at the end of a run.
LATE_MS = 6_000
# No load and no faults in the last part of a run.
QUIET_MS = 15_000

# All processes of a simulation parse the same rows. This takes a third of the time of runs with many processes.
Row.unpack = staticmethod(lru_cache(10_000)(Row.unpack))  # type: ignore[method-assign]


class World:
    """One run. ``noise`` multiplies how often messages are late or lost."""

    lease_ms = LEASE_MS
    steps_class = LeaseSteps

    def __init__(
        self,
        seed: int,
        *,
        ranks: list[int],
        shards: int,
        mutants: frozenset[str] = frozenset(),
        noise: float = 1.0,
        has_load: bool = True,
        waits_for_replicas: bool = False,
        end_ms: float = 100_000,
    ) -> None:
        """Each process of ``ranks`` joins in the first moments."""
        self.events = Events(seed)
        self.shards = shards
        self.end_ms = end_ms
        self.waits_for_replicas = waits_for_replicas
        self.replica_lag_ms = 50.0
        self.published: set[int] = set()
        self.calls: Counter[str] = Counter()
        # The time, shard, former and new holder of each change.
        self.changes: list[tuple[float, int, str, str]] = []
        # How often each kind of violation was found, and its first example: the time and the detail.
        self.found: Counter[str] = Counter()
        self.examples: dict[str, tuple[float, str]] = {}
        self.processes: list[SimulatedProcess] = []
        # Claims over the claim of a member that is well.
        self.claims_over_members = 0
        self.last_fault_at = 0.0
        self._mutants = mutants
        self._noise = noise
        self._names = (f"p{n}" for n in count())
        self._numbers = count(1)
        self._fences: dict[tuple[int, bytes], object] = {}
        self._last_holders: dict[int, str] = {}
        # Since when the server has each member's row.
        self._rows_since: dict[str, float] = {}
        self._undriven_since: list[float | None] = [0.0] * shards
        self._claim_servers: dict[object, Any] = {}
        self.empty = State((StoredShard(),) * shards)
        self.server = SimulatedServer(self, self.empty, 1e9)
        for rank in ranks:
            self.events.after(self.events.random.uniform(0, 300), self.join, rank)
        if has_load:
            self.events.after(500, self._produce)
        self.events.after(200, self._sample)

    def run(self) -> "World":
        self.events.run(self.end_ms)
        return self

    def is_mutant(self, name: str) -> bool:
        return name in self._mutants

    def report(self, finding: str, detail: str = "") -> None:
        self.found[finding] += 1
        self.examples.setdefault(finding, (round(self.events.now), detail))

    def next_event(self) -> int:
        return next(self._numbers)

    # Claims: which fence, and on which server.

    def make_claim(self, server: Any) -> object:
        """Return the identity of a claim, by which the checks distinguish claims."""
        claim = object()
        self._claim_servers[claim] = server
        return claim

    def on_other_server(self, claim: object, server: Any) -> object:
        """Return the identity of a planted bug: the claim, as used on another server without a new claim."""
        return (claim, server)

    def is_claim_of(self, claim: object, server: Any) -> bool:
        return self._claim_servers.get(claim) is server

    def on_claimed(self, server: Any, n: int, fence: bytes, before: str, member: str) -> None:
        if self._fences.setdefault((n, fence), (member, self.events.now)) != (member, self.events.now):
            self.report("equal fences", f"shard {n}")
        last, self._last_holders[n] = self._last_holders.get(n, ""), member
        if last == member:
            return
        self.changes.append((self.events.now, n, before, member))
        holder = next((process for process in self.processes if process.name == before), None)
        if holder and holder.is_well() and before in server.state.rows:
            self.claims_over_members += 1
        if holder and holder.is_well() and holder.driving[n] and holder.hangs_until[n] <= self.events.now:
            calm_since = max(self.last_fault_at, holder.well_since)
            if self.events.now - calm_since > RECOVERY_MS:
                self.report("a shard is taken from a well driver", f"shard {n}: {before} -> {member}")

    # The network.

    def send(self, thread: SimulatedThread, operation: int, call: Call) -> None:
        self.calls[call.script] += 1
        is_election = thread is thread.process._election
        timeout = thread.process.lease_ms / 4 if is_election else CALL_TIMEOUT_MS
        self.events.after(timeout, thread.resume, operation, None, ConnectionLost())
        if thread.process.is_cut_off:
            return
        connection, now = call.connection, self.events.now
        connection.last_arrival = max(connection.last_arrival, now + self._delay())
        self.events.after(connection.last_arrival - now, self._execute, thread, operation, call)

    def publish_change(self, server: Any, member: str) -> None:
        """Publish a change to all members but the one that made it. Some messages are lost."""
        random = self.events.random
        for process in self.processes:
            is_lost = random.random() < 0.002 * self._noise
            if process.is_well() and process.name != member and server is self.server and not is_lost:
                self.events.after(0.3 + random.random(), process.hear_change)

    def _execute(self, thread: SimulatedThread, operation: int, call: Call) -> None:
        random, server = self.events.random, call.connection.server
        if not server.is_up:
            self.events.after(1, thread.resume, operation, None, ConnectionLost())
            return
        if server.frozen_until > self.events.now:
            wait = server.frozen_until - self.events.now + 3 * random.random()
            self.events.after(wait, self._execute, thread, operation, call)
            return
        value, error = None, None
        try:
            value = getattr(server, call.script)(*call.args)
        except Fenced as fenced:
            error = fenced
        is_reply_lost = random.random() < 0.0003 * self._noise
        if not thread.process.is_cut_off and not is_reply_lost:
            self.events.after(self._delay(), thread.resume, operation, value, error)

    def _delay(self) -> float:
        random, kind = self.events.random, self.events.random.random()
        if kind < 0.001 * self._noise:
            return random.uniform(100, 3_000)
        return random.uniform(5, 60) if kind < 0.01 * self._noise else random.uniform(0.1, 0.6)

    # The load and the checks.

    def join(self, rank: int = EVENT_PROCESS, lease_ms: float | None = None) -> None:
        self.mark_fault()
        lease_ms = self.lease_ms if lease_ms is None else lease_ms
        self.processes.append(SimulatedProcess(self, next(self._names), rank, lease_ms))

    def mark_fault(self) -> None:
        self.last_fault_at = self.events.now

    def drivers(self) -> dict[int, SimulatedProcess]:
        """Return the process that drives each shard now, if there is one. A run calls this 20,000 times."""
        if not self.server.is_up:
            return {}
        now, server, stored = self.events.now, self.server, self.server.state.shards
        # If two processes of a mutant drive a shard, the first one counts.
        return {
            n: process
            for process in reversed(self.processes)
            if process.is_well()
            for n, claim in enumerate(process.driving)
            if claim and claim == (stored[n].fence, server) and process.hangs_until[n] <= now
        }

    def check_end(self) -> "World":
        """Check the end of a run, after a time without faults."""
        for n, shard in enumerate(self.server.state.shards):
            self.server.check_timers(n)
            believers = [p.name for p in self.processes if p.is_well() and p.driving[n]]
            if len(believers) > 1:
                self.report("several processes believe that they drive", f"shard {n}: {believers}")
            if any(due < self.server.now - LATE_MS for _, due in shard.messages):
                self.report("a message is late", f"shard {n}")
        living = [process for process in self.processes if process.is_alive]
        if living:
            first = min(process.rank for process in living)
            drivers = Counter(driver.name for driver in self.drivers().values())
            loads = [drivers[process.name] for process in living if process.rank == first]
            if max(loads) - min(loads) > 1:
                self.report("the loads differ", str(loads))
        calm = [change for change in self.changes if change[0] - self.last_fault_at > 6 * LEASE_MS]
        if len(calm) > 2 * self.shards:
            self.report("shards change hands without a cause", f"{len(calm)} times")
        return self

    def _produce(self) -> None:
        random = self.events.random
        if self.server.is_up and self.server.frozen_until <= self.events.now:
            n = random.randrange(self.shards)
            self.server.enqueue(n, self.next_event(), random.uniform(0, 4_000))
            for process in self.processes:
                if process.is_alive and process.driving[n]:
                    process.wake_loop(n, 0.5)
        if self.events.now < self.end_ms - QUIET_MS:
            self.events.after(random.expovariate(1 / 400), self._produce)

    def _sample(self) -> None:
        now = self.events.now
        self._rows_since = {member: self._rows_since.get(member, now) for member in self.server.state.rows}
        is_calm = now - self.last_fault_at > RECOVERY_MS
        drivers = self.drivers()
        well = [
            process
            for process in self.processes
            if process.is_well()
            and process.leaves_at is None
            and now - process.well_since > RECOVERY_MS
            # A process that was removed several times waits before it joins again.
            and now - self._rows_since.get(process.name, now) > RECOVERY_MS
        ]
        for n in range(self.shards):
            able = [process for process in well if now - process.hangs_until[n] > RECOVERY_MS]
            driver, since = drivers.get(n), self._undriven_since[n]
            # Members of the last resort leave a shard that nobody has claimed to event processes for a time.
            is_left = not self.server.state.shards[n].fence and all(process.rank != EVENT_PROCESS for process in able)
            limit = RECOVERY_MS + (UNCLAIMED_MS if is_left else 0)
            if driver is not None:
                self._undriven_since[n] = None
                if is_calm and any(process.rank < driver.rank for process in able):
                    self.report("a process of the last resort drives", f"shard {n}: {driver.name}")
            elif since is None:
                self._undriven_since[n] = now
            elif able and now - max(since, self.last_fault_at) > limit:
                self.report("a shard has no driver", f"shard {n}")
                self._undriven_since[n] = now
        self.events.after(200, self._sample)
