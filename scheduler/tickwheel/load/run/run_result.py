"""The result of a run: its measurements, and the values that are derived from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tickwheel.load.run.measurements import Measurements
from tickwheel.load.scenario.scenario import Scenario
from tickwheel.model.results import Lateness

# The processes that create the load are the *harness*. A process of the harness that uses more than this share of a
# core is a bottleneck.
_BUSY = 0.85
# If the harness was late, but no process used more than this share of a core, other programs delayed the harness.
_IDLE = 0.5
# If the producer, the polls or the ends of the work are later than this, the load was not sent as planned.
_LAG_S = 0.05
LIVE_STATES = ("invisible", "pending", "running")


@dataclass(frozen=True, slots=True)
class Sample:
    """State of the queues at one moment of the run."""

    moment_s: float
    counts: Mapping[str, Mapping[str, int]]
    lateness: Mapping[str, Lateness]

    @property
    def live(self) -> int:
        """Return the number of messages that are not finished."""
        return sum(counts[state] for counts in self.counts.values() for state in LIVE_STATES)


@dataclass(slots=True)
class RunResult:
    """Result of one run."""

    scenario: Scenario
    measurements: Measurements
    server: str
    namespace: str
    seconds: float = 0.0
    planned: int = 0
    ended: str = "all planned work is done"
    """Why the run ended."""
    interrupted: bool = False
    samples: list[Sample] = field(default_factory=list)
    cpu: dict[str, float] = field(default_factory=dict)
    """Share of a core that each process of the harness used."""
    problems: list[str] = field(default_factory=list)
    cleanup: str = ""
    """A sentence about the data that the run left in the namespace; empty if the namespace was deleted."""

    @property
    def bottlenecks(self) -> list[str]:
        """Return the reasons why the harness itself, and not the system, limited the run."""
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
                f"no process of the harness had more than {100 * max(self.cpu.values()):.0f} % of a core:"
                " other programs used the cores"
            )
        return reasons

    def lateness(self, queue: str) -> Lateness:
        """Return the lateness of the messages of this run. A queue's counters may also include earlier messages."""
        samples = [sample.lateness[queue] for sample in self.samples if queue in sample.lateness]
        return subtract(samples[-1], samples[0]) if samples else Lateness({}, {}, 0)

    def lateness_over_time(self, queue: str, share: float) -> list[tuple[float, int]]:
        """Return a percentile of the lateness, in ms, for each interval between two successive samples.

        Intervals in which no message became deliverable are left out.
        """
        points = []
        for before, after in pairwise(self.samples):
            between = subtract(after.lateness[queue], before.lateness[queue])
            if between.promoted:
                points.append((after.moment_s, between.percentile(share)))
        return points

    def waits_s(self, kind: str, queue: str, share: float) -> float | None:
        """Return a percentile of the times from the due time, in seconds of the scenario's day.

        If ``kind`` is "wait", the times end when a worker receives the message; if "start", when its work starts.
        """
        wait_s = self.measurements.percentile(f"{kind}/{queue}", share)
        return None if wait_s is None else wait_s * self.scenario.speed_up


def subtract(after: Lateness, before: Lateness) -> Lateness:
    """Return the values added between two readings."""
    return Lateness(
        {end: n - before.promoted.get(end, 0) for end, n in after.promoted.items() if n > before.promoted.get(end, 0)},
        {end: n - before.missed.get(end, 0) for end, n in after.missed.items() if n > before.missed.get(end, 0)},
        after.deadlines - before.deadlines,
    )
