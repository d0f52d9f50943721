"""The life of each message as the events tell it, in the server's order."""

from dataclasses import dataclass, field

from tests.fault.harness.run_evidence import Evidence
from tickwheel.storage.transition import OutboxTransition


@dataclass(slots=True)
class Life:
    """All transitions of one id. Ids of a run are unique over its queues."""

    id: str
    steps: list[OutboxTransition] = field(default_factory=list)
    shards: set[int] = field(default_factory=set)

    @property
    def births(self) -> int:
        """How often it came to be."""
        return sum(step.from_state is None for step in self.steps)

    def step(self, version: int) -> OutboxTransition | None:
        """The transition to a version, where there is one."""
        return next((step for step in self.steps if step.version == version), None)


def lives(evidence: Evidence) -> dict[str, Life]:
    """By id."""
    found: dict[str, Life] = {}
    for shard, transitions in enumerate(evidence.transitions):
        for each in transitions:
            life = found.setdefault(each.id, Life(each.id))
            life.steps.append(each)
            life.shards.add(shard)
    return found
