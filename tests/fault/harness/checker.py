"""Do the invariants hold in what a run left behind? Pure: each rule reads the evidence and yields what contradicts it.

I1 durability, I2 never early, I3 one valid lease, I4 events, I5 unknowns resolve, I6 nothing leaks, I7 single driver,
and bounded attempts. A rule is trusted because it was seen to fail: `tests/unit/test_fault_checker.py` doctors a
history for each.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.fault.harness.history import FAIL, OK, Call
from tests.fault.harness.lives import Life, lives
from tests.fault.harness.load import MAX_ATTEMPTS, POISON_ATTEMPTS, VALUE_KEY, Afterwards, plan_message
from tests.fault.harness.run_evidence import Evidence, Fence, Violation
from tickwheel.storage.record import State

# What the clocks of two processes of a host may differ by, and what rounding to whole ms makes.
CLOCKS_S = 0.005

_TERMINAL = {State.COMPLETED, State.CANCELLED, State.ERRORED, None}
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


def durability(evidence: Evidence, found: dict[str, Life]) -> Iterator[Violation]:
    """I1: every message whose enqueue was answered exists and ends, with its payload, as the events say."""
    for call in evidence.calls:
        if call.op in ("enqueue", "repeat") and call.outcome == OK:
            for id in call.ids:
                if id not in found:
                    yield Violation("I1", f"{id} was acknowledged to {call.process} and is lost")
        elif call.op == "cancel" and call.outcome == OK:
            life = found.get(call.ids[0])
            if life is None or not any(step.to_state is State.CANCELLED for step in life.steps):
                yield Violation("I1", f"{call.ids[0]} was acknowledged as cancelled, and no event says so")
        elif call.op == "reschedule" and call.outcome == OK:
            life = found.get(call.ids[0])
            if life is None or life.step(call.value[1]) is None:
                yield Violation("I1", f"{call.ids[0]} was acknowledged as rescheduled, and no event says so")
        elif call.op == "damaged":
            yield Violation("I1", f"{call.ids[0]} came to {call.process} with another payload")
    for id, life in found.items():
        last = life.steps[-1].to_state
        stands = evidence.end.get(id, "gone")
        if stands != ("gone" if last is None else last.label):
            yield Violation("I1", f"{id} is {stands}, and its events end with {last!r}")
        if last not in _TERMINAL:
            yield Violation("I1", f"{id} never ended: it is {stands}")
    for id in evidence.end.keys() - found.keys():
        yield Violation("I1", f"{id} is {evidence.end[id]}, and no event tells of it")


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


def one_at_a_time(evidence: Evidence, _: dict[str, Life]) -> Iterator[Violation]:
    """I3, by the server's order: nothing is Running twice, nor two messages of one value."""
    for transitions in evidence.transitions if evidence.ordered else ():
        running: dict[tuple[int, str], str] = {}
        for step in transitions:
            held = (step.queue_number, f"value {step.exclusive_value}" if step.exclusive_value else f"id {step.id}")
            if step.from_state is State.RUNNING and running.get(held) == step.id:
                del running[held]
            if step.to_state is State.RUNNING:
                if held in running:
                    yield Violation("I3", f"{step.id} became running while {running[held]} was, of {held[1]}")
                running[held] = step.id


def given_once(evidence: Evidence, found: dict[str, Life]) -> Iterator[Violation]:
    """I3: no lease is given to two callers, and each that was given is in the events, as its worker's."""
    holders: dict[tuple[str, int], str] = {}
    for call in evidence.calls:
        if call.op != "dequeue" or call.outcome != OK:
            continue
        for id, version, attempt, value in call.value:
            other = holders.setdefault((id, version), call.process)
            if other != call.process:
                yield Violation("I3", f"the lease {version} of {id} was given to {other} and to {call.process}")
            step = found[id].step(version) if id in found else None
            told = step and (step.to_state, step.attempt, step.worker, step.exclusive_value)
            if told != (State.RUNNING, attempt, call.process, value):
                yield Violation(
                    "I3", f"{call.process} has a lease {version} of {id} that the events do not know: {step}"
                )


def old_ones_refused(evidence: Evidence, found: dict[str, Life]) -> Iterator[Violation]:
    """I3: a call that was answered as having finished a message ended its own lease. By the clock of the workers,
    no other one got the value in between: the value is the worker's until the first call that may have ended its lease.
    """
    given: dict[tuple[str, str, int], float] = {}
    ended: dict[tuple[str, str, int], float] = {}
    held: dict[tuple[str, str], list[tuple[float, float, str]]] = defaultdict(list)
    for call in sorted(evidence.calls, key=lambda call: call.invoked):
        if call.op in ("complete", "fail"):
            for id, version in zip(call.ids, call.args, strict=True):
                ended.setdefault((call.process, id, version), call.invoked)
        if call.outcome != OK:
            continue
        if call.op == "dequeue":
            for id, version, *_ in call.value:
                given[call.process, id, version] = call.returned or call.invoked
        if call.op not in ("complete", "fail"):
            continue
        lost = call.value["lost"] if call.op == "complete" else []
        for id, version in zip(call.ids, call.args, strict=True):
            step = found[id].step(version + 1) if id in found else None
            if id in lost:
                continue
            completed = step is not None and step.to_state is State.COMPLETED
            if step is None or step.from_state is not State.RUNNING or completed != (call.op == "complete"):
                yield Violation("I3", f"{call.process} ended the lease {version} of {id}, and the events say {step}")
            elif (since := given.get((call.process, id, version))) is not None:
                until = ended[call.process, id, version]
                held[call.queue, step.exclusive_value or f"id {id}"].append((since, until, id))
    for (_, what), intervals in held.items():
        intervals.sort()
        for first, second in pairwise(intervals):
            if second[0] < first[1]:
                yield Violation("I3", f"{second[2]} was with a worker while {first[2]} was, of {what}")


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


def unknowns_resolve(evidence: Evidence, found: dict[str, Life]) -> Iterator[Violation]:
    """I5: whatever was repeated was done once, and the repeated call had the answer that goes with that."""
    calls: dict[str, list[tuple[Call, bool | None]]] = defaultdict(list)
    for call in evidence.calls:
        if call.op in ("enqueue", "repeat"):
            created = call.value if call.outcome == OK else [None] * len(call.ids)
            for id, was_created in zip(call.ids, created, strict=True):
                calls[id].append((call, was_created))
    for id, of_id in calls.items():
        of_id.sort(key=lambda each: each[0].invoked)
        births = found[id].births if id in found else 0
        if births > 1:
            yield Violation("I5", f"{id} was enqueued {births} times")
        if sum(created is True for _, created in of_id) > 1:
            yield Violation("I5", f"{id} was answered as new more than once")
        outcomes = Counter(call.outcome for call, _ in of_id)
        if births and outcomes[FAIL] == len(of_id):
            yield Violation("I5", f"{id} is there, and every answer was that nothing was done")
        for n, (_, created) in enumerate(of_id):
            if created is False and not any(call.outcome != FAIL for call, _ in of_id[:n]):
                yield Violation("I5", f"{id} was answered as there before anybody had enqueued it")
    for call in evidence.calls:
        if call.outcome == FAIL and str(call.value).startswith("IdConflict"):
            yield Violation("I5", f"a repeated call was refused as another message: {call.value}")
        if call.op == "complete" and call.outcome == OK:
            yield from _answers_as_it_was_done(call, found)


def _answers_as_it_was_done(call: Call, found: dict[str, Life]) -> Iterator[Violation]:
    """Who is told that its lease was lost did not complete the message by an earlier, unanswered call either."""
    versions = dict(zip(call.ids, call.args, strict=True))
    for id in call.value["lost"]:
        life = found.get(id)
        ended = None if life is None else life.step(versions[id] + 1)
        if ended is not None and ended.to_state is State.COMPLETED:
            yield Violation("I5", f"{id} was completed by {call.process}, which was told that its lease was lost")


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
    durability,
    never_early,
    one_at_a_time,
    given_once,
    old_ones_refused,
    events,
    repeats,
    unknowns_resolve,
    nothing_leaks,
    single_driver,
    bounded_attempts,
]


def summary(violations: list[Violation]) -> dict[str, int]:
    """How many of each invariant."""
    return dict(Counter(violation.invariant for violation in violations))
