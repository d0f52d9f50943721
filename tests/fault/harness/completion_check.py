"""I1 and I5: what was acknowledged is there and comes to an end; what was not known is known in the end, and once."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.fault.harness.history import FAIL, OK, Call
from tests.fault.harness.lives import Life
from tests.fault.harness.run_evidence import Evidence, Violation
from tickwheel.storage.record import State

_TERMINAL = {State.COMPLETED, State.CANCELLED, State.ERRORED, None}


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
