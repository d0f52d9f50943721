"""The checker of the fault harness: a sound history passes, and each invariant is seen to fail on a doctored one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.fault.harness.checker import check
from tests.fault.harness.evidence import Claim, Evidence
from tests.fault.harness.history import FAIL, OK, UNKNOWN, Call
from tests.fault.harness.load import EXCLUSIVE, MAX_ATTEMPTS, VALUE_KEY, Afterwards, Load, PlannedMessage, planned
from tickwheel.record import State
from tickwheel.transitions import Transition

LOAD = Load(seed=1, seconds=1, values=1)
# The wall clock and the history's start together.
START_MS = 1_000_000
QUEUES = {1: "plain", 2: EXCLUSIVE}


def _chosen(fits: Callable[[PlannedMessage], bool]) -> PlannedMessage:
    return next(found for n in range(10_000) if fits(found := planned(LOAD, f"m-{n}")))


DELAYED = _chosen(lambda m: m.queue == "plain" and m.delay_ms > 500 and m.afterwards is Afterwards.NOTHING)
FIRST = _chosen(lambda m: m.queue == EXCLUSIVE and m.delay_ms == 0)
SECOND = _chosen(lambda m: m.queue == EXCLUSIVE and m.delay_ms == 0 and m.id != FIRST.id)
CANCELLED = _chosen(lambda m: m.queue == "plain" and m.afterwards is Afterwards.CANCEL)


def step(
    message: PlannedMessage,
    version: int,
    before: State | None,
    after: State | None,
    at: int,
    *,
    until: int = 0,
    attempt: int = 0,
    worker: str = "",
) -> Transition:
    born = before is None
    number = next(number for number, name in QUEUES.items() if name == message.queue)
    pairs = {} if message.value is None else {VALUE_KEY: message.value}
    return Transition(
        number, message.id, message.value, 7, version, before, after, START_MS + at, START_MS + until, attempt, worker,
        due_ms=START_MS + message.delay_ms if born else None, metadata=pairs if born else None,
    )  # fmt: skip


def leased(message: PlannedMessage, version: int, at: int, worker: str = "w") -> list[Transition]:
    """Dequeued and, ten ms later, completed."""
    return [
        step(message, version, State.PENDING, State.RUNNING, at, attempt=1, worker=worker),
        step(message, version + 1, State.RUNNING, State.COMPLETED, at + 10, attempt=1, worker=worker),
    ]


def dequeued(message: PlannedMessage, version: int, at: float, worker: str = "w") -> list[Call]:
    """The same as its worker wrote it down."""
    got = [[message.id, version, 1, message.value]]
    return [
        Call(worker, "dequeue", message.queue, [], at, None, at + 0.001, OK, got),
        Call(worker, "complete", message.queue, [message.id], at + 0.009, [version], at + 0.011, OK, {"lost": []}),
    ]


def sound() -> Evidence:
    """Two messages of one value one after the other, a delayed one, and one that is cancelled; all as it should be."""
    due = DELAYED.delay_ms
    transitions = [
        step(FIRST, 1, None, State.PENDING, 0),
        step(SECOND, 1, None, State.PENDING, 0),
        step(DELAYED, 1, None, State.INVISIBLE, 0, until=due),
        step(CANCELLED, 1, None, State.INVISIBLE, 0, until=CANCELLED.delay_ms),
        *leased(FIRST, 2, 10),
        *leased(SECOND, 2, 30),
        step(CANCELLED, 2, State.INVISIBLE, State.CANCELLED, 50),
        step(DELAYED, 2, State.INVISIBLE, State.PENDING, due),
        *leased(DELAYED, 3, due + 1),
    ]
    calls = [
        *(Call("p", "enqueue", m.queue, [m.id], 0.0, None, 0.001, OK, [True]) for m in (FIRST, SECOND, CANCELLED)),
        Call("p", "enqueue", "plain", [DELAYED.id], 0.0, None, 0.002, UNKNOWN, None),
        Call("p", "enqueue", "plain", [DELAYED.id], 0.1, None, 0.102, OK, [False]),
        Call("p", "cancel", "plain", [CANCELLED.id], 0.05, None, 0.051, OK, ["cancelled", 2, True]),
        *dequeued(FIRST, 2, 0.01),
        *dequeued(SECOND, 2, 0.03),
        *dequeued(DELAYED, 3, due / 1000 + 0.001),
    ]
    ends = {FIRST.id: "completed", SECOND.id: "completed", DELAYED.id: "completed", CANCELLED.id: "cancelled"}
    claims = [(0, (1, 9), "a"), (1, (1, 3), "b"), (0, (2, 7), "b")]
    return Evidence(
        *(LOAD, calls, [transitions], QUEUES, ends),
        fences=[[(1, 1), (1, 2), (2, 1)]],
        claims=[[Claim(shard, fence, "zookeeper", owner) for shard, fence, owner in claims]],
        repeated=20,
        in_flight=20,
    )


def invariants(evidence: Evidence) -> set[str]:
    return {violation.invariant for violation in check(evidence)}


def call(evidence: Evidence, op: str, id: str) -> Call:
    return next(call for call in reversed(evidence.calls) if call.op == op and id in call.ids)


def only(evidence: Evidence, message: PlannedMessage, version: int) -> int:
    """Where the transition to a version of a message is."""
    [found] = [n for n, each in enumerate(evidence.transitions[0]) if (each.id, each.version) == (message.id, version)]
    return found


def test_a_sound_history_has_no_violation() -> None:
    assert check(sound()) == []


def lost(evidence: Evidence) -> None:
    evidence.transitions[0] = [each for each in evidence.transitions[0] if each.id != CANCELLED.id]
    del evidence.end[CANCELLED.id]


def never_ended(evidence: Evidence) -> None:
    evidence.transitions[0] = evidence.transitions[0][:-3]
    evidence.calls = evidence.calls[:-2]
    evidence.end[DELAYED.id] = "invisible"


def ended_elsewhere(evidence: Evidence) -> None:
    evidence.end[FIRST.id] = "errored"


def not_cancelled(evidence: Evidence) -> None:
    at = only(evidence, CANCELLED, 2)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], to_state=State.PENDING)


def damaged_payload(evidence: Evidence) -> None:
    evidence.calls.append(Call("w", "damaged", "plain", [DELAYED.id], 1.0, None, 1.0, OK, 3))


def early_by_the_server(evidence: Evidence) -> None:
    at = only(evidence, DELAYED, 2)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], time_ms=START_MS + DELAYED.delay_ms - 1)


def born_early(evidence: Evidence) -> None:
    at = only(evidence, FIRST, 1)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], due_ms=START_MS + 5_000)


def rescheduled_early(evidence: Evidence) -> None:
    at = only(evidence, DELAYED, 2)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], due_ms=START_MS + DELAYED.delay_ms + 1)


def early_by_the_harness(evidence: Evidence) -> None:
    evidence.calls[-2].returned = DELAYED.delay_ms / 1000 - 0.1


def two_of_a_value(evidence: Evidence) -> None:
    transitions = evidence.transitions[0]
    transitions.insert(only(evidence, SECOND, 3), transitions.pop(only(evidence, FIRST, 3)))


def a_lease_given_twice(evidence: Evidence) -> None:
    evidence.calls += dequeued(DELAYED, 3, DELAYED.delay_ms / 1000 + 0.5, "another")[:1]


def a_lease_that_no_event_knows(evidence: Evidence) -> None:
    at = only(evidence, FIRST, 2)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], worker="another")


def an_old_token_accepted(evidence: Evidence) -> None:
    evidence.calls += [Call("w", "complete", "plain", [DELAYED.id], 9.0, [1], 9.1, OK, {"lost": []})]


def a_value_with_two_workers(evidence: Evidence) -> None:
    call(evidence, "complete", FIRST.id).invoked = 0.035


def a_gap(evidence: Evidence) -> None:
    del evidence.transitions[0][only(evidence, DELAYED, 2)]


def an_event_twice(evidence: Evidence) -> None:
    evidence.transitions[0].append(evidence.transitions[0][only(evidence, CANCELLED, 2)])


def out_of_order(evidence: Evidence) -> None:
    transitions = evidence.transitions[0]
    transitions.insert(0, transitions.pop(only(evidence, FIRST, 3)))


def an_illegal_step(evidence: Evidence) -> None:
    transitions = evidence.transitions[0]
    at = only(evidence, DELAYED, 2)
    transitions[at : at + 3] = [step(DELAYED, 2, State.INVISIBLE, State.COMPLETED, DELAYED.delay_ms)]


def other_metadata(evidence: Evidence) -> None:
    at = only(evidence, FIRST, 1)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], metadata={})


def enqueued_twice(evidence: Evidence) -> None:
    evidence.transitions[0].append(step(FIRST, 1, None, State.PENDING, 99))


def answered_as_new_twice(evidence: Evidence) -> None:
    evidence.calls.append(Call("p", "repeat", EXCLUSIVE, [FIRST.id], 1.0, None, 1.1, OK, [True]))


def there_though_refused(evidence: Evidence) -> None:
    call(evidence, "enqueue", FIRST.id).outcome = FAIL


def there_before_it_was_asked_for(evidence: Evidence) -> None:
    call(evidence, "enqueue", FIRST.id).value = [False]


def told_that_its_lease_was_lost(evidence: Evidence) -> None:
    call(evidence, "complete", FIRST.id).value = {"lost": [FIRST.id]}


def a_finding_of_the_audit(evidence: Evidence) -> None:
    evidence.findings.append("a counter is one too high")


def a_key_left_over(evidence: Evidence) -> None:
    evidence.leftovers.append("tw:{0}:w2:17")


def an_older_epoch_obeyed(evidence: Evidence) -> None:
    evidence.fences[0].append((1, 9))


def an_older_claim_obeyed(evidence: Evidence) -> None:
    evidence.claims[0].append(Claim(0, (2, 6), "zookeeper", "b"))


def an_epoch_of_two(evidence: Evidence) -> None:
    evidence.claims[0].append(Claim(0, (2, 8), "zookeeper", "a"))


def a_shard_driven_without_a_claim(evidence: Evidence) -> None:
    evidence.fences.append([(1, 1)])
    evidence.fences.append([(1, 1)])


def more_relayed_twice_than_was_under_way(evidence: Evidence) -> None:
    evidence.repeated = 21


def an_attempt_left_out(evidence: Evidence) -> None:
    at = only(evidence, FIRST, 2)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], attempt=2)


def errored_too_soon(evidence: Evidence) -> None:
    at = only(evidence, FIRST, 3)
    assert MAX_ATTEMPTS > 1
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], to_state=State.ERRORED)


@pytest.mark.parametrize(
    ("doctored", "invariant"),
    [
        (lost, "I1"),
        (never_ended, "I1"),
        (ended_elsewhere, "I1"),
        (not_cancelled, "I1"),
        (damaged_payload, "I1"),
        (early_by_the_server, "I2"),
        (born_early, "I2"),
        (rescheduled_early, "I2"),
        (early_by_the_harness, "I2"),
        (two_of_a_value, "I3"),
        (a_lease_given_twice, "I3"),
        (a_lease_that_no_event_knows, "I3"),
        (an_old_token_accepted, "I3"),
        (a_value_with_two_workers, "I3"),
        (a_gap, "I4"),
        (an_event_twice, "I4"),
        (out_of_order, "I4"),
        (an_illegal_step, "I4"),
        (other_metadata, "I4"),
        (enqueued_twice, "I5"),
        (answered_as_new_twice, "I5"),
        (there_though_refused, "I5"),
        (there_before_it_was_asked_for, "I5"),
        (told_that_its_lease_was_lost, "I5"),
        (a_finding_of_the_audit, "I6"),
        (a_key_left_over, "I6"),
        (an_older_epoch_obeyed, "I7"),
        (an_older_claim_obeyed, "I7"),
        (an_epoch_of_two, "I7"),
        (a_shard_driven_without_a_claim, "I7"),
        (more_relayed_twice_than_was_under_way, "I4"),
        (an_attempt_left_out, "attempts"),
        (errored_too_soon, "attempts"),
    ],
)
def test_a_doctored_history_is_noticed(doctored: Callable[[Evidence], None], invariant: str) -> None:
    evidence = sound()
    doctored(evidence)
    assert invariant in invariants(evidence)


def test_a_file_that_was_rewritten_may_have_lost_all_claims_of_a_shard() -> None:
    evidence = sound()
    a_shard_driven_without_a_claim(evidence)
    evidence.rewritten = True
    assert check(evidence) == []


def test_a_complete_whose_answer_was_lost_may_have_ended_the_lease_when_it_was_sent() -> None:
    evidence = sound()
    complete = call(evidence, "complete", FIRST.id)
    # Done at once, but its first answer never came, and the second when the value was with another worker already.
    evidence.calls.append(replace(complete, outcome=UNKNOWN))
    complete.invoked, complete.returned = 0.05, 0.051
    assert check(evidence) == []
