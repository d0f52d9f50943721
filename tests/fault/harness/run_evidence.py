"""What is known of a run when it is over: what its processes wrote down, and what the server has."""

from dataclasses import dataclass, field

from tests.fault.harness.history import Call
from tests.fault.harness.load import Load
from tickwheel.storage.transition import OutboxTransition

# (epoch, connection number)
Fence = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that a server obeyed: the fence, the kind of election that gave its epoch, and who claimed."""

    shard: int
    fence: Fence
    election: str
    owner: str


@dataclass(slots=True)
class Evidence:
    """``transitions`` of each shard, in the server's order; ``end`` is the state of each message that is there, by id;
    ``fences`` those that each shard was seen to obey, one after the other; ``claims`` all that each server has written
    down, in its order, less what was before a file was ``rewritten``; ``findings`` those of the product's audit;
    ``leftovers`` keys that should be gone.

    What was enqueued in ``turned_back`` (moments of the history's clock) was so while the server's clock was behind, so
    that no other clock can tell when it is due; ``drift`` is by how much of a second it gains one at most. ``repeated``
    transitions were relayed more than once, and ``in_flight`` is how many relays had under way when they were killed,
    where nothing else can have repeated any. ``ordered``: those of different messages are in order, too.
    """

    load: Load
    calls: list[Call]
    transitions: list[list[OutboxTransition]]
    queues: dict[int, str]
    end: dict[str, str]
    fences: list[list[Fence]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    turned_back: list[tuple[float, float]] = field(default_factory=list)
    claims: list[list[Claim]] = field(default_factory=list)
    rewritten: bool = False
    drift: float = 0.0
    repeated: int = 0
    in_flight: int | None = None
    ordered: bool = True
    unfinished: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """An invariant that does not hold, and by what that is seen."""

    invariant: str
    text: str
