"""I3: by every record there is at most one valid lease on a message, and on an exclusive value, at any moment."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.fault.harness.history import OK
from tests.fault.harness.lives import Life
from tests.fault.harness.run_evidence import Evidence, Violation
from tickwheel.storage.record import State


def one_at_a_time(evidence: Evidence, _: dict[str, Life]) -> Iterator[Violation]:
    """By the server's order: nothing is Running twice, nor two messages of one value."""
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
    """No lease is given to two callers, and each that was given is in the events, as its worker's."""
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
    """Who was answered that it finished a message ended the very lease it had; and by the workers' clocks, which are
    one, nobody else was given the value between. It was its worker's until the first call that may have ended it.
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
