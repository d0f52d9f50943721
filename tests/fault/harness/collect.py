"""Gathers the evidence of a run from its server, once all of its processes have ended."""

import json
from typing import Any

from tests.fault.harness.call_log import read
from tests.fault.harness.claims import claims, was_rewritten
from tests.fault.harness.leftovers import of_ended_messages
from tests.fault.harness.run_evidence import Evidence
from tests.fault.harness.system_under_test import NAMESPACE, SystemUnderTest
from tickwheel import Queue, Tickwheel, TickwheelError
from tickwheel.doctor import audit
from tickwheel.plan import Request, pairs_from_flat, send_request
from tickwheel.storage import transition
from tickwheel.storage.keys import shard_key
from tickwheel.storage.transition import OutboxTransition

_PAGE = 1_000


def collect(system: SystemUnderTest) -> Evidence:
    """Return the evidence of the run."""
    tickwheel = system.tickwheel
    queues = tickwheel.queues()
    numbers = {queue.config().number: queue.name for queue in queues}
    transitions = [_transitions(tickwheel, shard) for shard in range(system.plan.load.shards)]
    relayed: list[OutboxTransition] = []
    if system.relay is not None:
        relayed = system.relay.read(numbers)
        transitions = [relayed + _not_among(relayed, transitions)]
    left = unfinished(tickwheel)
    end, damaged = _states(queues)
    evidence = Evidence(
        system.plan.load,
        read(system.folder),
        transitions,
        numbers,
        end,
        [list(fences) for fences in system.fences],
        damaged + tickwheel._run(audit(tickwheel._context)),
        ordered=system.relay is None,
        leftovers=[] if left else of_ended_messages(system),
        claims=[claims(server.folder) for server in system.place.servers],
        rewritten=any(was_rewritten(server.folder) for server in system.place.servers),
        unfinished=left,
    )
    if system.relay is not None:
        evidence.repeated = system.relay.records() - len(relayed)
        if all(fault.kind == "kill_relay" for fault in system.plan.faults):
            evidence.in_flight = sum(in_flight for _, in_flight in killed_relays(system))
    return evidence


def _states(queues: list[Queue]) -> tuple[dict[str, str], list[str]]:
    """Return the states of all messages by id, and the errors of queues that could not be read."""
    states: dict[str, str] = {}
    damaged = []
    for queue in queues:
        try:
            states.update((message.id, message.state) for message in queue.messages())
        except TickwheelError as error:
            damaged.append(str(error))
    return states, damaged


def unfinished(tickwheel: Tickwheel) -> dict[str, int]:
    """Return the number of unfinished messages by state."""
    counts: dict[str, int] = {}
    for queue in tickwheel.queues():
        for state, count in queue.counts().items():
            if count and state in ("invisible", "pending", "running"):
                counts[state] = counts.get(state, 0) + count
    return counts


def entries(tickwheel: Tickwheel) -> tuple[int, int]:
    """Return the number of entries ever added to the outboxes of all shards, and the number that wait for the relay."""
    total = left = 0
    for shard in range(tickwheel._context.shards):
        request = Request(shard, command=("XINFO", "STREAM", shard_key(NAMESPACE, shard, "events")))
        about: dict[bytes, Any] = dict(pairs_from_flat(tickwheel._run(send_request(request)).value))
        total += about[b"entries-added"]
        left += about[b"length"]
    return total, left


def killed_relays(system: SystemUnderTest) -> list[tuple[int, int]]:
    """Return the acknowledged and the in-flight transitions of each relay that was killed before its trim, by time."""
    paths = sorted(system.folder.glob("killed-*"), key=lambda path: path.stat().st_mtime_ns)
    return [tuple(json.loads(path.read_text())) for path in paths]


def _not_among(relayed: list[OutboxTransition], waiting: list[list[OutboxTransition]]) -> list[OutboxTransition]:
    """Return the transitions that no relay has published. Usually, these are ends of retentions."""
    keys = {(step.id, step.exclusive_value, step.incarnation, step.version) for step in relayed}
    return [
        step
        for of_shard in waiting
        for step in of_shard
        if (step.id, step.exclusive_value, step.incarnation, step.version) not in keys
    ]


def _transitions(tickwheel: Tickwheel, shard: int) -> list[OutboxTransition]:
    """Return the transitions of a shard. The product's client finds the shard on every deployment."""
    transitions: list[OutboxTransition] = []
    after = b"-"
    while True:
        command = ("XRANGE", shard_key(NAMESPACE, shard, "events"), after, "+", "COUNT", _PAGE)
        entries = tickwheel._run(send_request(Request(shard, command=command))).value
        for entry_id, fields in entries:
            after = b"(" + entry_id
            transitions += transition.decode(fields[1])
        if len(entries) < _PAGE:
            return transitions
