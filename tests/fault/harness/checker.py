"""Checks the invariants in the evidence of a run, without I/O: each rule yields the violations of one invariant.

I1 durability, I2 never early, I3 one valid lease, I4 events, I5 unknowns resolve, I6 nothing leaks, I7 single driver,
and bounded attempts. `tests/unit/test_fault_checker.py` shows that each rule detects its violations, with a
modified history for each.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.fault.harness.call_log import FAIL, OK, Call
from tests.fault.harness.lives import Life, lives
from tests.fault.harness.load import MAX_ATTEMPTS, POISON_ATTEMPTS, VALUE_KEY, Afterwards, plan_message
from tests.fault.harness.run_evidence import Evidence, Fence, Violation
from tickwheel.storage.record import State

# Allowed difference between the clocks of two processes of a host, including rounding to whole ms.
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
    """Return all violations, sorted by invariant."""
    lives_by_id = lives(evidence)
    return sorted(violation for rule in RULES for violation in rule(evidence, lives_by_id))


def durability(evidence: Evidence, lives_by_id: dict[str, Life]) -> Iterator[Violation]:
    """I1: no acknowledged call is lost, no payload is damaged, and each message ends in the state of its last event."""
    for call in evidence.calls:
        if call.op in ("enqueue", "repeat") and call.outcome == OK:
            for id in call.ids:
                if id not in lives_by_id:
                    yield Violation("I1", f"{id} was acknowledged to {call.process} and is lost")
        elif call.op == "cancel" and call.outcome == OK:
            life = lives_by_id.get(call.ids[0])
            if life is None or not any(step.to_state is State.CANCELLED for step in life.steps):
                yield Violation("I1", f"{call.ids[0]} was acknowledged as cancelled, but has no such event")
        elif call.op == "reschedule" and call.outcome == OK:
            life = lives_by_id.get(call.ids[0])
            if life is None or life.step(call.value[1]) is None:
                yield Violation("I1", f"{call.ids[0]} was acknowledged as rescheduled, but has no such event")
        elif call.op == "damaged":
            yield Violation("I1", f"{call.ids[0]} was delivered to {call.process} with a wrong payload")
    for id, life in lives_by_id.items():
        last = life.steps[-1].to_state
        end_state = evidence.end.get(id, "gone")
        if end_state != ("gone" if last is None else last.label):
            yield Violation("I1", f"{id} is {end_state}, but its events end with {last!r}")
        if last not in _TERMINAL:
            yield Violation("I1", f"{id} never ended: it is {end_state}")
    for id in evidence.end.keys() - lives_by_id.keys():
        yield Violation("I1", f"{id} is {evidence.end[id]}, but has no event")


def never_early(evidence: Evidence, lives_by_id: dict[str, Life]) -> Iterator[Violation]:
    """I2: no message is delivered before its delay is over, by the server's clock and by that of the call logs."""
    for life in lives_by_id.values():
        until = None
        for step in life.steps:
            # The events of a new message and of a reschedule contain the due time.
            when = until if step.due_ms is None else step.due_ms
            if step.to_state is State.PENDING and when is not None and step.time_ms < when:
                yield Violation("I2", f"{life.id} became pending {when - step.time_ms} ms early: {step}")
            until = step.until_ms if step.to_state is State.INVISIBLE else None
    invoked: dict[str, float] = {}
    for call in evidence.calls:
        if call.op == "enqueue":
            for id in call.ids:
                invoked[id] = min(call.invoked, invoked.get(id, call.invoked))
    for call in evidence.calls:
        for id, *_ in call.value if call.op == "dequeue" and call.outcome == "ok" else ():
            message = plan_message(evidence.load, id)
            behind = any(first <= invoked[id] <= last for first, last in evidence.turned_back)
            if message.afterwards is Afterwards.RESCHEDULE or behind or call.returned is None:
                continue
            early = invoked[id] + message.delay_ms / 1000 - call.returned
            if early > CLOCKS_S + message.delay_ms / 1000 * evidence.drift:
                yield Violation("I2", f"{id} was delivered to {call.process} {early:.3f} s before its delay was over")


def one_at_a_time(evidence: Evidence, _: dict[str, Life]) -> Iterator[Violation]:
    """I3, in the order of the server: no message is running twice, nor two messages of one exclusive value."""
    for transitions in evidence.transitions if evidence.ordered else ():
        running: dict[tuple[int, str], str] = {}
        for step in transitions:
            key = (step.queue_number, f"value {step.exclusive_value}" if step.exclusive_value else f"id {step.id}")
            if step.from_state is State.RUNNING and running.get(key) == step.id:
                del running[key]
            if step.to_state is State.RUNNING:
                if key in running:
                    yield Violation(
                        "I3", f"{step.id} became running while {running[key]} was running, both with {key[1]}"
                    )
                running[key] = step.id


def delivered_once(evidence: Evidence, lives_by_id: dict[str, Life]) -> Iterator[Violation]:
    """I3: no lease is delivered to two callers, and the events contain each delivered lease with its worker."""
    holders: dict[tuple[str, int], str] = {}
    for call in evidence.calls:
        if call.op != "dequeue" or call.outcome != OK:
            continue
        for id, version, attempt, value in call.value:
            other = holders.setdefault((id, version), call.process)
            if other != call.process:
                yield Violation("I3", f"the lease {version} of {id} was delivered to {other} and to {call.process}")
            step = lives_by_id[id].step(version) if id in lives_by_id else None
            event = step and (step.to_state, step.attempt, step.worker, step.exclusive_value)
            if event != (State.RUNNING, attempt, call.process, value):
                yield Violation(
                    "I3", f"{call.process} has a lease {version} of {id} that the events do not contain: {step}"
                )


def old_leases_rejected(evidence: Evidence, lives_by_id: dict[str, Life]) -> Iterator[Violation]:
    """I3: an acknowledged complete or fail ended the lease of its caller, and no other worker held the value then.

    By the clock of the workers, a worker holds the exclusive value from the delivery of a message until the first call
    that may have ended the lease.
    """
    delivered: dict[tuple[str, str, int], float] = {}
    ended: dict[tuple[str, str, int], float] = {}
    intervals_by_value: dict[tuple[str, str], list[tuple[float, float, str]]] = defaultdict(list)
    for call in sorted(evidence.calls, key=lambda call: call.invoked):
        if call.op in ("complete", "fail"):
            for id, version in zip(call.ids, call.args, strict=True):
                ended.setdefault((call.process, id, version), call.invoked)
        if call.outcome != OK:
            continue
        if call.op == "dequeue":
            for id, version, *_ in call.value:
                delivered[call.process, id, version] = call.returned or call.invoked
        if call.op not in ("complete", "fail"):
            continue
        lost = call.value["lost"] if call.op == "complete" else []
        for id, version in zip(call.ids, call.args, strict=True):
            step = lives_by_id[id].step(version + 1) if id in lives_by_id else None
            if id in lost:
                continue
            completed = step is not None and step.to_state is State.COMPLETED
            if step is None or step.from_state is not State.RUNNING or completed != (call.op == "complete"):
                yield Violation("I3", f"{call.process} ended the lease {version} of {id}, but the event is {step}")
            elif (since := delivered.get((call.process, id, version))) is not None:
                until = ended[call.process, id, version]
                intervals_by_value[call.queue, step.exclusive_value or f"id {id}"].append((since, until, id))
    for (_, value), intervals in intervals_by_value.items():
        intervals.sort()
        for first, second in pairwise(intervals):
            if second[0] < first[1]:
                yield Violation(
                    "I3", f"{second[2]} was with a worker while {first[2]} was with another, both with {value}"
                )


def events(evidence: Evidence, lives_by_id: dict[str, Life]) -> Iterator[Violation]:
    """I4: each message has the versions 1 to n, once and in order, with legal transitions, on one shard."""
    for life in lives_by_id.values():
        state: State | None = None
        version = 0
        if len(life.shards) > 1:
            yield Violation("I4", f"{life.id} has events on shards {sorted(life.shards)}")
        for step in life.steps:
            is_first = step.from_state is None
            if (step.version != version + 1 and not is_first) or (is_first and step.version != 1):
                yield Violation("I4", f"{life.id}: version {step.version} follows {version}")
            if step.from_state != state or step.to_state not in _LEGAL[step.from_state]:
                yield Violation(
                    "I4", f"{life.id} went from {step.from_state!r} to {step.to_state!r}, but was {state!r}"
                )
            if is_first:
                message = plan_message(evidence.load, life.id)
                pairs = {} if message.value is None else {VALUE_KEY: message.value}
                if step.due_ms is None or step.metadata != pairs or evidence.queues[step.queue_number] != message.queue:
                    yield Violation("I4", f"{life.id} was created with other content than requested: {step}")
            state, version = step.to_state, step.version


def repeats(evidence: Evidence, _: dict[str, Life]) -> Iterator[Violation]:
    """I4: after the kill of a relay, at most the transitions that it had in flight are relayed twice."""
    if evidence.in_flight is not None and evidence.repeated > evidence.in_flight:
        yield Violation("I4", f"{evidence.repeated} were relayed twice, but {evidence.in_flight} were in flight")


def bounded_attempts(evidence: Evidence, lives_by_id: dict[str, Life]) -> Iterator[Violation]:
    """Attempts are counted from 1 without gaps, up to the limit. A poisoned message has exactly its maximum."""
    for life in lives_by_id.values():
        poisoned = plan_message(evidence.load, life.id).poisoned
        limit = POISON_ATTEMPTS if poisoned else MAX_ATTEMPTS
        attempts = [step.attempt for step in life.steps if step.to_state is State.RUNNING]
        if attempts != list(range(1, len(attempts) + 1)) or len(attempts) > limit:
            yield Violation("attempts", f"{life.id} was delivered in attempts {attempts}, of {limit}")
        errored = life.steps[-1].to_state is State.ERRORED
        if errored and len(attempts) != limit:
            yield Violation("attempts", f"{life.id} is errored after {len(attempts)} of {limit} attempts")
        if poisoned and not errored and life.id in evidence.end and not evidence.unfinished:
            yield Violation("attempts", f"{life.id} is poisoned and ended as {evidence.end[life.id]}")


def unknowns_resolve(evidence: Evidence, lives_by_id: dict[str, Life]) -> Iterator[Violation]:
    """I5: a repeated call was executed once, and its answers are consistent with that."""
    calls: dict[str, list[tuple[Call, bool | None]]] = defaultdict(list)
    for call in evidence.calls:
        if call.op in ("enqueue", "repeat"):
            created = call.value if call.outcome == OK else [None] * len(call.ids)
            for id, was_created in zip(call.ids, created, strict=True):
                calls[id].append((call, was_created))
    for id, of_id in calls.items():
        of_id.sort(key=lambda entry: entry[0].invoked)
        births = lives_by_id[id].births if id in lives_by_id else 0
        if births > 1:
            yield Violation("I5", f"{id} was enqueued {births} times")
        if sum(created is True for _, created in of_id) > 1:
            yield Violation("I5", f"{id} was answered as new more than once")
        outcomes = Counter(call.outcome for call, _ in of_id)
        if births and outcomes[FAIL] == len(of_id):
            yield Violation("I5", f"{id} exists, but every enqueue was answered as not executed")
        for n, (_, created) in enumerate(of_id):
            if created is False and not any(call.outcome != FAIL for call, _ in of_id[:n]):
                yield Violation("I5", f"{id} was answered as existing before its first enqueue")
    for call in evidence.calls:
        if call.outcome == FAIL and str(call.value).startswith("IdConflict"):
            yield Violation("I5", f"a repeated call was rejected as a different message: {call.value}")
        if call.op == "complete" and call.outcome == OK:
            yield from _answers_as_it_was_done(call, lives_by_id)


def _answers_as_it_was_done(call: Call, lives_by_id: dict[str, Life]) -> Iterator[Violation]:
    """If a complete reports a lost lease, no earlier unanswered call of the same caller has completed the message."""
    versions = dict(zip(call.ids, call.args, strict=True))
    for id in call.value["lost"]:
        life = lives_by_id.get(id)
        ended = None if life is None else life.step(versions[id] + 1)
        if ended is not None and ended.to_state is State.COMPLETED:
            yield Violation("I5", f"{id} was completed by {call.process}, which was answered that its lease was lost")


def nothing_leaks(evidence: Evidence, _: dict[str, Life]) -> Iterator[Violation]:
    """I6: the audit finds every index, counter and timer consistent with the records, and no key is left over."""
    for finding in evidence.findings:
        yield Violation("I6", finding)
    for key in evidence.leftovers:
        yield Violation("I6", f"key {key} is left over")


def single_driver(evidence: Evidence, _: dict[str, Life]) -> Iterator[Violation]:
    """I7: the fences of a shard never decrease, neither as observed nor in the append-only file of each server.

    An epoch of ZooKeeper belongs to one process. A shard that was driven was claimed.
    """
    for shard, fences in enumerate(evidence.fences):
        for before, after in pairwise(fences):
            if after[0] < before[0]:
                yield Violation("I7", f"shard {shard} accepted epoch {after[0]} after {before[0]}")
    owners: dict[tuple[int, int], str] = {}
    for of_server in evidence.claims:
        accepted: dict[int, Fence] = {}
        for claim in of_server:
            if claim.fence < accepted.get(claim.shard, claim.fence):
                yield Violation("I7", f"shard {claim.shard} accepted {claim} after {accepted[claim.shard]}")
            accepted[claim.shard] = claim.fence
            # Lock files of two hosts may assign an epoch twice. Then the number of the connection decides.
            if claim.election == "zookeeper":
                owner = owners.setdefault((claim.shard, claim.fence[0]), claim.owner)
                if owner != claim.owner:
                    yield Violation("I7", f"epoch {claim.fence[0]} of shard {claim.shard} belonged to {owner}: {claim}")
    claimed = {claim.shard for of_server in evidence.claims for claim in of_server}
    for shard, fences in enumerate(evidence.fences):
        if fences and shard not in claimed and not evidence.rewritten:
            yield Violation("I7", f"shard {shard} was driven, but its append-only file contains no claim")


RULES: list[Callable[[Evidence, dict[str, Life]], Iterator[Violation]]] = [
    durability,
    never_early,
    one_at_a_time,
    delivered_once,
    old_leases_rejected,
    events,
    repeats,
    unknowns_resolve,
    nothing_leaks,
    single_driver,
    bounded_attempts,
]


def summary(violations: list[Violation]) -> dict[str, int]:
    """Return the number of violations of each invariant."""
    return dict(Counter(violation.invariant for violation in violations))
