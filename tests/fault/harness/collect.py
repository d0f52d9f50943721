"""Gathers the evidence of a run from its server, once all of its processes have ended."""

import json
from typing import Any

from tests.fault.harness.claims import claims, was_rewritten
from tests.fault.harness.history import read
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
    """All that is known of the run."""
    tickwheel = system.tickwheel
    queues = tickwheel.queues()
    numbers = {queue.config().number: queue.name for queue in queues}
    happened = [_transitions(tickwheel, shard) for shard in range(system.plan.load.shards)]
    relayed: list[OutboxTransition] = []
    if system.relay is not None:
        relayed = system.relay.read(numbers)
        happened = [relayed + _not_among(relayed, happened)]
    left = unfinished(tickwheel)
    end, damaged = _states(queues)
    found = Evidence(
        system.plan.load,
        read(system.folder),
        happened,
        numbers,
        end,
        [list(seen) for seen in system.fences],
        damaged + tickwheel._run(audit(tickwheel._context)),
        ordered=system.relay is None,
        leftovers=[] if left else of_ended_messages(system),
        claims=[claims(server.folder) for server in system.place.servers],
        rewritten=any(was_rewritten(server.folder) for server in system.place.servers),
        unfinished=left,
    )
    if system.relay is not None:
        found.repeated = system.relay.records() - len(relayed)
        if all(fault.kind == "kill_relay" for fault in system.plan.faults):
            found.in_flight = sum(in_flight for _, in_flight in killed_relays(system))
    return found


def _states(queues: list[Queue]) -> tuple[dict[str, str], list[str]]:
    """The states of all messages by id, and what ended the reading of a queue."""
    states: dict[str, str] = {}
    damaged = []
    for queue in queues:
        try:
            states.update((message.id, message.state) for message in queue.messages())
        except TickwheelError as error:
            damaged.append(str(error))
    return states, damaged


def unfinished(tickwheel: Tickwheel) -> dict[str, int]:
    """How many messages have not ended, by state; nothing where none."""
    found: dict[str, int] = {}
    for queue in tickwheel.queues():
        for state, count in queue.counts().items():
            if count and state in ("invisible", "pending", "running"):
                found[state] = found.get(state, 0) + count
    return found


def entries(tickwheel: Tickwheel) -> tuple[int, int]:
    """How many entries the outboxes of all shards were ever given, and how many of them wait to be relayed."""
    total = left = 0
    for shard in range(tickwheel._context.shards):
        asked = Request(shard, command=("XINFO", "STREAM", shard_key(NAMESPACE, shard, "events")))
        about: dict[bytes, Any] = dict(pairs_from_flat(tickwheel._run(send_request(asked)).value))
        total += about[b"entries-added"]
        left += about[b"length"]
    return total, left


def killed_relays(system: SystemUnderTest) -> list[tuple[int, int]]:
    """Of each relay that was killed before it cut: transitions acknowledged to it, and under way, in order of time."""
    told = sorted(system.folder.glob("killed-*"), key=lambda path: path.stat().st_mtime_ns)
    return [tuple(json.loads(path.read_text())) for path in told]


def _not_among(relayed: list[OutboxTransition], waiting: list[list[OutboxTransition]]) -> list[OutboxTransition]:
    """Those that nobody had relayed when the last event process ended: ends of retention, as a rule."""
    seen = {(step.id, step.exclusive_value, step.incarnation, step.version) for step in relayed}
    return [
        step
        for of_shard in waiting
        for step in of_shard
        if (step.id, step.exclusive_value, step.incarnation, step.version) not in seen
    ]


def _transitions(tickwheel: Tickwheel, shard: int) -> list[OutboxTransition]:
    found: list[OutboxTransition] = []
    after = b"-"
    while True:
        command = ("XRANGE", shard_key(NAMESPACE, shard, "events"), after, "+", "COUNT", _PAGE)
        entries = tickwheel._run(send_request(Request(shard, command=command))).value
        for entry_id, fields in entries:
            after = b"(" + entry_id
            found += transition.decode(fields[1])
        if len(entries) < _PAGE:
            return found
