"""What a run came to: what was measured, and what follows from it. The reports print it, and judge nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tickwheel.load.run.measurements import Measurements
from tickwheel.load.scenario.scenario import Scenario
from tickwheel.model.results import Lateness

# A process that is busy for more of the time than this has no room for what comes next.
_BUSY = 0.85
# Late with less than this, it was kept waiting by something else.
_IDLE = 0.5
# Beyond it the load was not the one that was planned.
_LAG_S = 0.05
_LIVE = ("invisible", "pending", "running")


@dataclass(frozen=True, slots=True)
class Sample:
    """How the queues stood at a moment of the run."""

    moment_s: float
    counts: Mapping[str, Mapping[str, int]]
    lateness: Mapping[str, Lateness]

    @property
    def live(self) -> int:
        """How many messages are not at their end."""
        return sum(counts[state] for counts in self.counts.values() for state in _LIVE)


@dataclass(slots=True)
class RunResult:
    """One run."""

    scenario: Scenario
    measurements: Measurements
    server: str
    namespace: str
    seconds: float = 0.0
    planned: int = 0
    ended: str = "all that was planned is done"
    """Why it ended."""
    interrupted: bool = False
    samples: Sequence[Sample] = ()
    cpu: dict[str, float] = field(default_factory=dict)
    """Of each process of the harness, how much of a core it used."""
    problems: list[str] = field(default_factory=list)
    cleanup: str = ""
    """What became of what the run had made."""

    @property
    def bottlenecks(self) -> list[str]:
        """Where the harness itself, and not the system, was what set the pace."""
        reasons = [
            f"process '{name}' used {100 * used:.0f} % of a core"
            for name, used in sorted(self.cpu.items())
            if used > _BUSY
        ]
        for name, label in (("lag", "the producer was"), ("poll lag", "polls were"), ("overrun", "work ended")):
            late = self.measurements.percentile(name, 0.99)
            if late is not None and late > _LAG_S:
                reasons.append(f"{label} {1_000 * late:.0f} ms late (p99)")
        if reasons and self.cpu and max(self.cpu.values()) < _IDLE:
            reasons.append(
                f"no process of it had more than {100 * max(self.cpu.values()):.0f} % of a core: others had them"
            )
        return reasons

    def lateness(self, queue: str) -> Lateness:
        """Of this run alone: a queue that was there before has a history."""
        samples = [sample.lateness[queue] for sample in self.samples if queue in sample.lateness]
        return subtract(samples[-1], samples[0]) if samples else Lateness({}, {}, 0)

    def lateness_over_time(self, queue: str, share: float) -> list[tuple[float, int]]:
        """A percentile, in ms, of what became deliverable between each two looks, where anything did."""
        points = []
        for before, after in pairwise(self.samples):
            between = subtract(after.lateness[queue], before.lateness[queue])
            if between.promoted:
                points.append((after.moment_s, between.percentile(share)))
        return points

    def waits_s(self, kind: str, queue: str, share: float) -> float | None:
        """A percentile of ``wait`` or ``start`` in the scenario's own time."""
        wait_s = self.measurements.percentile(f"{kind}/{queue}", share)
        return None if wait_s is None else wait_s * self.scenario.speed_up


def subtract(after: Lateness, before: Lateness) -> Lateness:
    """What came in between."""
    return Lateness(
        {end: n - before.promoted.get(end, 0) for end, n in after.promoted.items() if n > before.promoted.get(end, 0)},
        {end: n - before.missed.get(end, 0) for end, n in after.missed.items() if n > before.missed.get(end, 0)},
        after.deadlines - before.deadlines,
    )
