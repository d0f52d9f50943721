"""Do the invariants hold in what a run left behind? Pure: each rule reads the evidence and yields what contradicts it.

I1 durability, I2 never early, I3 one valid lease, I4 events, I5 unknowns resolve, I6 nothing leaks, I7 single driver,
and bounded attempts. A rule is trusted because it was seen to fail: `tests/unit/test_fault_checker.py` doctors a
history for each.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.fault.harness import completion_check, lease_check
from tests.fault.harness.lives import Life, lives
from tests.fault.harness.load import MAX_ATTEMPTS, POISON_ATTEMPTS, VALUE_KEY, Afterwards, plan_message
from tests.fault.harness.run_evidence import Evidence, Fence, Violation
from tickwheel.storage.record import State

# What the clocks of two processes of a host may differ by, and what rounding to whole ms makes.
CLOCKS_S = 0.005

_S = State
_LEGAL: dict[State | None, set[State | None]] = {
    None: {_S.INVISIBLE, _S.PENDING},
    _S.INVISIBLE: {_S.INVISIBLE, _S.PENDING, _S.CANCELLED},
    _S.PENDING: {_S.INVISIBLE, _S.PENDING, _S.RUNNING, _S.CANCELLED},
    _S.RUNNING: {_S.INVISIBLE, _S.PENDING, _S.COMPLETED, _S.CANCELLED, _S.ERRORED},
    _S.ERRORED: {_S.PENDING, None},
    _S.COMPLETED: {None},
    _S.CANCELLED: {None},
}


def check(evidence: Evidence) -> list[Violation]:
    """All violations of all invariants, those of one kind together."""
    found = lives(evidence)
    return sorted(violation for rule in RULES for violation in rule(evidence, found))


def never_early(evidence: Evidence, found: dict[str, Life]) -> Iterator[Violation]:
    """I2: by the server's clock as its events tell, and by the history's: a delay has passed since it was asked for."""
    for life in found.values():
        until = None
        for step in life.steps:
            # A new message and a reschedule name a due time of their own.
            when = until if step.due_ms is None else step.due_ms
            if step.to_state is State.PENDING and when is not None and step.time_ms < when:
                yield Violation("I2", f"{life.id} became pending {when - step.time_ms} ms early: {step}")
            until = step.until_ms if step.to_state is State.INVISIBLE else None
    asked: dict[str, float] = {}
    for call in evidence.calls:
        if call.op == "enqueue":
            for id in call.ids:
                asked[id] = min(call.invoked, asked.get(id, call.invoked))
    for call in evidence.calls:
        for id, *_ in call.value if call.op == "dequeue" and call.outcome == "ok" else ():
            message = plan_message(evidence.load, id)
            behind = any(first <= asked[id] <= last for first, last in evidence.turned_back)
            if message.afterwards is Afterwards.RESCHEDULE or behind or call.returned is None:
                continue
            early = asked[id] + message.delay_ms / 1000 - call.returned
            if early > CLOCKS_S + message.delay_ms / 1000 * evidence.drift:
                yield Violation("I2", f"{id} was delivered to {call.process} {early:.3f} s before its delay was over")


def events(evidence: Evidence, found: dict[str, Life]) -> Iterator[Violation]:
    """I4: of each message versions 1 to n, each once and in order, each a legal step from the last; on one shard."""
    for life in found.values():
        state: State | None = None
        version = 0
        if len(life.shards) > 1:
            yield Violation("I4", f"{life.id} has events on shards {sorted(life.shards)}")
        for step in life.steps:
            born = step.from_state is None
            if (step.version != version + 1 and not born) or (born and step.version != 1):
                yield Violation("I4", f"{life.id}: version {step.version} follows {version}")
            if step.from_state != state or step.to_state not in _LEGAL[step.from_state]:
                yield Violation(
                    "I4", f"{life.id} went from {step.from_state!r} to {step.to_state!r}, and was {state!r}"
                )
            if born:
                message = plan_message(evidence.load, life.id)
                pairs = {} if message.value is None else {VALUE_KEY: message.value}
                if step.due_ms is None or step.metadata != pairs or evidence.queues[step.queue_number] != message.queue:
                    yield Violation("I4", f"{life.id} was born as another than was asked for: {step}")
            state, version = step.to_state, step.version


def repeats(evidence: Evidence, _: dict[str, Life]) -> Iterator[Violation]:
    """I4: a relay that was killed repeats what it had under way, and no more."""
    if evidence.in_flight is not None and evidence.repeated > evidence.in_flight:
        yield Violation("I4", f"{evidence.repeated} were relayed twice, and {evidence.in_flight} were under way")


def bounded_attempts(evidence: Evidence, found: dict[str, Life]) -> Iterator[Violation]:
    """Attempts are counted one by one, never beyond the limit; a poisoned message has exactly as many as it may."""
    for life in found.values():
        poisoned = plan_message(evidence.load, life.id).poisoned
        most = POISON_ATTEMPTS if poisoned else MAX_ATTEMPTS
        attempts = [step.attempt for step in life.steps if step.to_state is State.RUNNING]
        if attempts != list(range(1, len(attempts) + 1)) or len(attempts) > most:
            yield Violation("attempts", f"{life.id} was delivered in attempts {attempts}, of {most}")
        errored = life.steps[-1].to_state is State.ERRORED
        if errored and len(attempts) != most:
            yield Violation("attempts", f"{life.id} is errored after {len(attempts)} of {most} attempts")
        if poisoned and not errored and life.id in evidence.end and not evidence.unfinished:
            yield Violation("attempts", f"{life.id} is poisoned and ended as {evidence.end[life.id]}")


def nothing_leaks(evidence: Evidence, _: dict[str, Life]) -> Iterator[Violation]:
    """I6: the audit finds every index, counter and timer as the records say, and no key is left over."""
    for finding in evidence.findings:
        yield Violation("I6", finding)
    for key in evidence.leftovers:
        yield Violation("I6", f"key {key} is left over")


def single_driver(evidence: Evidence, _: dict[str, Life]) -> Iterator[Violation]:
    """I7: a shard obeys one fence at a time and no later one is lower, as was seen, and as each server wrote it down;
    an epoch of ZooKeeper is one process's. A shard that was driven was claimed.
    """
    for shard, fences in enumerate(evidence.fences):
        for before, after in pairwise(fences):
            if after[0] < before[0]:
                yield Violation("I7", f"shard {shard} obeyed epoch {after[0]} after {before[0]}")
    owners: dict[tuple[int, int], str] = {}
    for of_server in evidence.claims:
        obeyed: dict[int, Fence] = {}
        for claim in of_server:
            if claim.fence < obeyed.get(claim.shard, claim.fence):
                yield Violation("I7", f"shard {claim.shard} obeyed {claim} after {obeyed[claim.shard]}")
            obeyed[claim.shard] = claim.fence
            # Lock files of two hosts may give the same epoch twice: then the connection's number tells who is obeyed.
            if claim.election == "zookeeper":
                owner = owners.setdefault((claim.shard, claim.fence[0]), claim.owner)
                if owner != claim.owner:
                    yield Violation("I7", f"epoch {claim.fence[0]} of shard {claim.shard} was {owner}'s: {claim}")
    claimed = {claim.shard for of_server in evidence.claims for claim in of_server}
    for shard, fences in enumerate(evidence.fences):
        if fences and shard not in claimed and not evidence.rewritten:
            yield Violation("I7", f"shard {shard} was driven, and no claim of it is written down")


RULES: list[Callable[[Evidence, dict[str, Life]], Iterator[Violation]]] = [
    completion_check.durability,
    never_early,
    lease_check.one_at_a_time,
    lease_check.given_once,
    lease_check.old_ones_refused,
    events,
    repeats,
    completion_check.unknowns_resolve,
    nothing_leaks,
    single_driver,
    bounded_attempts,
]


def summary(violations: list[Violation]) -> dict[str, int]:
    """How many of each invariant."""
    return dict(Counter(violation.invariant for violation in violations))
