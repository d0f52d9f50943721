"""The evidence of a run: the records of its processes, and the final state of the server."""

from dataclasses import dataclass, field

from tests.fault.harness.call_log import Call
from tests.fault.harness.load import Load
from tickwheel.storage.transition import OutboxTransition

# (epoch, connection number)
Fence = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that a server accepted: the fence, the kind of election of its epoch, and its owner."""

    shard: int
    fence: Fence
    election: str
    owner: str


@dataclass(slots=True)
class Evidence:
    """All records of a run.

    calls        all calls of producers and workers
    transitions  transitions of each shard, in the order of the server
    end          final state of each existing message, by id
    fences       observed fences of each shard, in order
    findings     findings of the product's audit
    leftovers    keys that should not exist
    turned_back  intervals, by the call logs' clock, in which the server's clock was wrong: messages enqueued then can
                 be due earlier or later by the call logs' clock
    claims       claims that each server accepted, in order; claims before a rewrite of its file are missing
    rewritten    whether a server has rewritten its file
    drift        maximum drift of the server's clock, in seconds per second
    repeated     number of transitions that were relayed more than once
    in_flight    number of transitions in flight in relays when they were killed; None if other causes can repeat
                 transitions, too
    ordered      whether the transitions of different messages are in order, too
    unfinished   number of messages that did not end, by state
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
    """A violation of an invariant, with its proof."""

    invariant: str
    text: str
