"""The checker of the fault harness: a valid history passes, and each planted violation of an invariant is found."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.fault.harness.call_log import FAIL, OK, UNKNOWN, Call
from tests.fault.harness.checker import check
from tests.fault.harness.load import EXCLUSIVE, MAX_ATTEMPTS, PlannedMessage
from tests.fault.harness.run_evidence import Claim, Evidence
from tests.unit.fault_harness.valid_run import (
    CANCELLED,
    DELAYED,
    FIRST,
    SECOND,
    START_MS,
    step,
    valid_run,
    worker_calls,
)
from tickwheel.storage.record import State

pytestmark = pytest.mark.unit


def violation_texts(evidence: Evidence) -> list[str]:
    return [f"{violation.invariant}: {violation.text}" for violation in check(evidence)]


def call(evidence: Evidence, op: str, id: str) -> Call:
    return next(call for call in reversed(evidence.calls) if call.op == op and id in call.ids)


def index_of(evidence: Evidence, message: PlannedMessage, version: int) -> int:
    """Return the index of the transition to a version of a message."""
    [index] = [
        n
        for n, transition in enumerate(evidence.transitions[0])
        if (transition.id, transition.version) == (message.id, version)
    ]
    return index


def test_a_valid_history_has_no_violation() -> None:
    assert check(valid_run()) == []


def lost(evidence: Evidence) -> None:
    evidence.transitions[0] = [transition for transition in evidence.transitions[0] if transition.id != CANCELLED.id]
    del evidence.end[CANCELLED.id]


def never_ended(evidence: Evidence) -> None:
    evidence.transitions[0] = evidence.transitions[0][:-3]
    evidence.calls = evidence.calls[:-2]
    evidence.end[DELAYED.id] = "invisible"


def in_another_state_than_its_events(evidence: Evidence) -> None:
    evidence.end[FIRST.id] = "errored"


def not_cancelled(evidence: Evidence) -> None:
    at = index_of(evidence, CANCELLED, 2)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], to_state=State.PENDING)


def not_rescheduled(evidence: Evidence) -> None:
    evidence.calls.append(Call("p", "reschedule", "plain", [DELAYED.id], 0.2, None, 0.201, OK, ["invisible", 9]))


def an_unknown_message(evidence: Evidence) -> None:
    evidence.end["stranger"] = "completed"


def damaged_payload(evidence: Evidence) -> None:
    evidence.calls.append(Call("w", "damaged", "plain", [DELAYED.id], 1.0, None, 1.0, OK, 3))


def early_by_the_server(evidence: Evidence) -> None:
    at = index_of(evidence, DELAYED, 2)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], time_ms=START_MS + DELAYED.delay_ms - 1)


def born_early(evidence: Evidence) -> None:
    at = index_of(evidence, FIRST, 1)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], due_ms=START_MS + 5_000)


def rescheduled_early(evidence: Evidence) -> None:
    at = index_of(evidence, DELAYED, 2)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], due_ms=START_MS + DELAYED.delay_ms + 1)


def early_by_the_harness(evidence: Evidence) -> None:
    evidence.calls[-2].returned = DELAYED.delay_ms / 1000 - 0.1


def two_running_of_a_value(evidence: Evidence) -> None:
    transitions = evidence.transitions[0]
    transitions.insert(index_of(evidence, SECOND, 3), transitions.pop(index_of(evidence, FIRST, 3)))


def a_lease_given_twice(evidence: Evidence) -> None:
    evidence.calls += worker_calls(DELAYED, 3, DELAYED.delay_ms / 1000 + 0.5, "another")[:1]


def a_lease_without_an_event(evidence: Evidence) -> None:
    at = index_of(evidence, FIRST, 2)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], worker="another")


def a_lease_of_another_value(evidence: Evidence) -> None:
    got = next(call.value[0] for call in evidence.calls if call.op == "dequeue" and call.value[0][0] == FIRST.id)
    got[3] = "another"


def an_old_token_accepted(evidence: Evidence) -> None:
    evidence.calls += [Call("w", "complete", "plain", [DELAYED.id], 9.0, [1], 9.1, OK, {"lost": []})]


def a_value_with_two_workers(evidence: Evidence) -> None:
    call(evidence, "complete", FIRST.id).invoked = 0.035


def a_gap(evidence: Evidence) -> None:
    del evidence.transitions[0][index_of(evidence, DELAYED, 2)]


def a_version_left_out(evidence: Evidence) -> None:
    at = index_of(evidence, CANCELLED, 2)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], version=3)


def on_two_shards(evidence: Evidence) -> None:
    assert evidence.transitions[0][-1].id == DELAYED.id
    evidence.transitions.append([evidence.transitions[0].pop()])


def an_event_twice(evidence: Evidence) -> None:
    evidence.transitions[0].append(evidence.transitions[0][index_of(evidence, CANCELLED, 2)])


def out_of_order(evidence: Evidence) -> None:
    transitions = evidence.transitions[0]
    transitions.insert(0, transitions.pop(index_of(evidence, FIRST, 3)))


def an_illegal_step(evidence: Evidence) -> None:
    transitions = evidence.transitions[0]
    at = index_of(evidence, DELAYED, 2)
    transitions[at : at + 3] = [step(DELAYED, 2, State.INVISIBLE, State.COMPLETED, DELAYED.delay_ms)]


def other_metadata(evidence: Evidence) -> None:
    at = index_of(evidence, FIRST, 1)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], metadata={})


def enqueued_twice(evidence: Evidence) -> None:
    evidence.transitions[0].append(step(FIRST, 1, None, State.PENDING, 99))


def answered_as_new_twice(evidence: Evidence) -> None:
    evidence.calls.append(Call("p", "repeat", EXCLUSIVE, [FIRST.id], 1.0, None, 1.1, OK, [True]))


def enqueued_though_refused(evidence: Evidence) -> None:
    call(evidence, "enqueue", FIRST.id).outcome = FAIL


def answered_as_existing_before_the_enqueue(evidence: Evidence) -> None:
    call(evidence, "enqueue", FIRST.id).value = [False]


def refused_as_another_message(evidence: Evidence) -> None:
    evidence.calls.append(Call("p", "repeat", EXCLUSIVE, [FIRST.id], 1.0, None, 1.1, FAIL, "IdConflict: another"))


def completed_after_the_lease_was_lost(evidence: Evidence) -> None:
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


def more_relayed_twice_than_were_in_flight(evidence: Evidence) -> None:
    evidence.repeated = 21


def an_attempt_left_out(evidence: Evidence) -> None:
    at = index_of(evidence, FIRST, 2)
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], attempt=2)


def errored_too_soon(evidence: Evidence) -> None:
    at = index_of(evidence, FIRST, 3)
    assert MAX_ATTEMPTS > 1
    evidence.transitions[0][at] = replace(evidence.transitions[0][at], to_state=State.ERRORED)


def delivered_too_often(evidence: Evidence) -> None:
    transitions, version = evidence.transitions[0], 3
    del transitions[index_of(evidence, DELAYED, version) :]
    for attempt in range(1, MAX_ATTEMPTS + 2):
        for before, after in ((State.PENDING, State.RUNNING), (State.RUNNING, State.PENDING)):
            transitions.append(step(DELAYED, version, before, after, 9_000 + version, attempt=attempt, worker="w"))
            version += 1


def poisoned_and_completed(evidence: Evidence) -> None:
    evidence.load = replace(evidence.load, poisoned=1_000)


@pytest.mark.parametrize(
    ("modify", "violation"),
    [
        (lost, "I1: .* was acknowledged to p and is lost"),
        (lost, "I1: .* acknowledged as cancelled, but has no such event"),
        (not_cancelled, "I1: .* acknowledged as cancelled, but has no such event"),
        (not_rescheduled, "I1: .* acknowledged as rescheduled, but has no such event"),
        (never_ended, "I1: .* never ended"),
        (in_another_state_than_its_events, "I1: .* is errored, but its events end with .*COMPLETED"),
        (an_unknown_message, "I1: stranger is completed, but has no event"),
        (damaged_payload, "I1: .* was delivered to w with a wrong payload"),
        (early_by_the_server, "I2: .* became pending 1 ms early"),
        (born_early, "I2: .* became pending 5000 ms early"),
        (rescheduled_early, "I2: .* became pending 1 ms early"),
        (early_by_the_harness, "I2: .* was delivered to w 0.100 s before its delay was over"),
        (two_running_of_a_value, "I3: .* became running while .* was running"),
        (a_lease_given_twice, "I3: the lease 3 of .* was delivered to w and to another"),
        (a_lease_given_twice, "I3: another has a lease 3 of .* that the events do not contain"),
        (a_lease_without_an_event, "I3: w has a lease 2 of .* that the events do not contain"),
        (a_lease_of_another_value, "I3: w has a lease 2 of .* that the events do not contain"),
        (an_attempt_left_out, "I3: w has a lease 2 of .* that the events do not contain"),
        (an_old_token_accepted, "I3: w ended the lease 1 of .*, but the event is"),
        (a_value_with_two_workers, "I3: .* was with a worker while .* was with another"),
        (a_gap, "I4: .* version 3 follows 1"),
        (a_version_left_out, "I4: .* version 3 follows 1"),
        (an_event_twice, "I4: .* version 2 follows 2"),
        (on_two_shards, r"I4: .* has events on shards \[0, 1\]"),
        (out_of_order, "I4: .* went from .*RUNNING.* to .*COMPLETED.*, but was None"),
        (an_illegal_step, "I4: .* went from .*INVISIBLE.* to .*COMPLETED.*, but was .*INVISIBLE"),
        (other_metadata, "I4: .* was created with other content"),
        (more_relayed_twice_than_were_in_flight, "I4: 21 were relayed twice, but 20 were in flight"),
        (enqueued_twice, "I5: .* was enqueued 2 times"),
        (answered_as_new_twice, "I5: .* was answered as new more than once"),
        (enqueued_though_refused, "I5: .* exists, but every enqueue was answered as not executed"),
        (answered_as_existing_before_the_enqueue, "I5: .* was answered as existing before its first enqueue"),
        (refused_as_another_message, "I5: a repeated call was rejected as a different message"),
        (completed_after_the_lease_was_lost, "I5: .* was completed by w, which was answered that its lease was lost"),
        (a_finding_of_the_audit, "I6: a counter is one too high"),
        (a_key_left_over, "I6: key .* is left over"),
        (an_older_epoch_obeyed, "I7: shard 0 accepted epoch 1 after 2"),
        (an_older_claim_obeyed, r"I7: shard 0 accepted .*\(2, 6\).* after \(2, 7\)"),
        (an_epoch_of_two, "I7: epoch 2 of shard 0 belonged to b"),
        (a_shard_driven_without_a_claim, "I7: shard 2 was driven, but its append-only file contains no claim"),
        (an_attempt_left_out, r"attempts: .* was delivered in attempts \[2\]"),
        (delivered_too_often, r"attempts: .* was delivered in attempts \[1, 2, .*\], of 12"),
        (errored_too_soon, "attempts: .* is errored after 1 of 12 attempts"),
        (poisoned_and_completed, "attempts: .* is poisoned and ended as completed"),
    ],
)
def test_a_falsified_history_is_noticed(modify: Callable[[Evidence], None], violation: str) -> None:
    evidence = valid_run()
    modify(evidence)
    assert any(re.match(violation, text) for text in violation_texts(evidence)), violation_texts(evidence)


def test_a_rewritten_file_may_have_lost_all_claims_of_a_shard() -> None:
    evidence = valid_run()
    a_shard_driven_without_a_claim(evidence)
    evidence.rewritten = True
    assert check(evidence) == []


def test_a_complete_without_an_answer_may_have_ended_the_lease_when_it_was_sent() -> None:
    evidence = valid_run()
    complete = call(evidence, "complete", FIRST.id)
    # The call was executed immediately, but its first reply was lost. The second reply came after another worker had
    # received the next message of the value.
    evidence.calls.append(replace(complete, outcome=UNKNOWN))
    complete.invoked, complete.returned = 0.05, 0.051
    assert check(evidence) == []
