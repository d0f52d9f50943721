"""Gathers the evidence of a run from its server, once all of its processes have ended."""

from tests.fault.harness.evidence import Evidence
from tests.fault.harness.history import read
from tests.fault.harness.world import NAMESPACE, World
from tickwheel import Tickwheel, transitions
from tickwheel.doctor import audit
from tickwheel.keys import shard_key
from tickwheel.plan import Request, one
from tickwheel.transitions import Transition

_PAGE = 1_000


def collect(world: World) -> Evidence:
    """All that is known of the run."""
    tickwheel = world.tickwheel
    queues = tickwheel.queues()
    numbers = {queue.config().number: queue.name for queue in queues}
    if world.relay is None:
        happened = [_transitions(tickwheel, shard) for shard in range(world.plan.load.shards)]
    else:
        happened = [world.relay.read(numbers)]
    return Evidence(
        world.plan.load,
        read(world.folder),
        happened,
        numbers,
        {message.id: message.state for queue in queues for message in queue.messages()},
        [list(seen) for seen in world.fences],
        tickwheel._run(audit(tickwheel._core)),
        ordered=world.relay is None,
        unfinished=unfinished(tickwheel),
    )


def unfinished(tickwheel: Tickwheel) -> dict[str, int]:
    """How many messages have not ended, by state; nothing where none."""
    found: dict[str, int] = {}
    for queue in tickwheel.queues():
        for state, count in queue.counts().items():
            if count and state in ("invisible", "pending", "running"):
                found[state] = found.get(state, 0) + count
    return found


def outbox(tickwheel: Tickwheel) -> int:
    """How many entries of all shards wait to be relayed."""
    shards = range(tickwheel._core.shards)
    asked = [Request(n, command=("XLEN", shard_key(NAMESPACE, n, "events"))) for n in shards]
    return sum(int(tickwheel._run(one(each)).value) for each in asked)


def _transitions(tickwheel: Tickwheel, shard: int) -> list[Transition]:
    found: list[Transition] = []
    after = b"-"
    while True:
        command = ("XRANGE", shard_key(NAMESPACE, shard, "events"), after, "+", "COUNT", _PAGE)
        entries = tickwheel._run(one(Request(shard, command=command))).value
        for entry_id, fields in entries:
            after = b"(" + entry_id
            found += transitions.decode(fields[1])
        if len(entries) < _PAGE:
            return found
