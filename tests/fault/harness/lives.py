"""The life of each message from its events, in the order of the server."""

from dataclasses import dataclass, field

from tests.fault.harness.run_evidence import Evidence
from tickwheel.storage.transition import OutboxTransition


@dataclass(slots=True)
class Life:
    """All transitions of one id. An id of a run occurs in one queue only."""

    id: str
    steps: list[OutboxTransition] = field(default_factory=list)
    shards: set[int] = field(default_factory=set)

    @property
    def births(self) -> int:
        """The number of times that a message with this id was created."""
        return sum(step.from_state is None for step in self.steps)

    def step(self, version: int) -> OutboxTransition | None:
        """Return the transition to a version, or None."""
        return next((step for step in self.steps if step.version == version), None)


def lives(evidence: Evidence) -> dict[str, Life]:
    """Return the lives of all messages by id."""
    lives_by_id: dict[str, Life] = {}
    for shard, transitions in enumerate(evidence.transitions):
        for step in transitions:
            life = lives_by_id.setdefault(step.id, Life(step.id))
            life.steps.append(step)
            life.shards.add(shard)
    return lives_by_id
