"""The states of a message and the transitions between them. No other transition exists.

The scripts in `lua/` carry out the transitions; the header of each script names its own. The table in
`docs/guarantees.md` is generated from `TRANSITIONS`.
"""

from dataclasses import dataclass
from typing import Final

from tickwheel.storage.record import State

INVISIBLE, PENDING, RUNNING, COMPLETED, CANCELLED, ERRORED = State
FINAL: Final = (COMPLETED, CANCELLED, ERRORED)


@dataclass(frozen=True, slots=True)
class TransitionRule:
    """A row of the state machine: from each state of ``before`` a message can enter each state of ``after``.

    None stands for a message that does not exist.
    """

    before: tuple[State | None, ...]
    script: str
    condition: str
    after: tuple[State | None, ...]
    note: str = ""


TRANSITIONS: Final = (
    TransitionRule((None,), "enqueue", "enqueue, due in the future", (INVISIBLE,)),
    TransitionRule((None,), "enqueue", "enqueue, already due", (PENDING,)),
    TransitionRule((INVISIBLE,), "promote", "the event process, at the due time", (PENDING,)),
    TransitionRule((PENDING,), "dequeue", "dequeue", (RUNNING,), "one more attempt, new lease token"),
    TransitionRule((RUNNING,), "complete", "complete (with the token)", (COMPLETED,)),
    TransitionRule(
        (RUNNING,), "fail", "fail (with the token), attempts left", (INVISIBLE, PENDING), "Invisible during a back-off"
    ),
    TransitionRule((RUNNING,), "fail", "fail (with the token), no attempts left or `final=True`", (ERRORED,)),
    TransitionRule((RUNNING,), "release", "release (with the token)", (PENDING,), "the attempt does not count"),
    TransitionRule((RUNNING,), "expire", "lease expired, attempts left", (PENDING,)),
    TransitionRule((RUNNING,), "expire", "lease expired, no attempts left", (ERRORED,)),
    TransitionRule((RUNNING,), "extend", "extend (with the token)", (RUNNING,), "no new version, no event"),
    TransitionRule((INVISIBLE, PENDING, RUNNING), "cancel", "cancel", (CANCELLED,)),
    TransitionRule(
        (INVISIBLE, PENDING), "reschedule", "reschedule (new `due`, new `deadline`, or both)", (INVISIBLE, PENDING)
    ),
    TransitionRule((ERRORED,), "redrive", "redrive", (PENDING,), "attempts are counted from zero again"),
    TransitionRule((INVISIBLE, PENDING), "purge", "purge", (CANCELLED,), "the message is removed in the same call"),
    TransitionRule((RUNNING,), "purge", "delete the queue with `purge=True`", (CANCELLED,), "as above"),
    TransitionRule(FINAL, "purge", "purge", (None,), "before the retention is over"),
    TransitionRule(FINAL, "retire", "the retention is over", (None,)),
)


def describe_sources(script: str) -> str:
    """Return the states that ``script`` starts from, as text: "invisible, pending or running"."""
    labels = [state.label for row in TRANSITIONS if row.script == script for state in row.before if state]
    return " or ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))
