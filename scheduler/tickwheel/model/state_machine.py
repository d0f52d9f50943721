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
class Transition:
    """A row of the state machine: from each state of ``before`` a message can enter each state of ``after``.

    None stands for a message that does not exist.
    """

    before: tuple[State | None, ...]
    script: str
    condition: str
    after: tuple[State | None, ...]
    note: str = ""


TRANSITIONS: Final = (
    Transition((None,), "enqueue", "enqueue, due in the future", (INVISIBLE,)),
    Transition((None,), "enqueue", "enqueue, already due", (PENDING,)),
    Transition((INVISIBLE,), "promote", "the event process, at the due time", (PENDING,)),
    Transition((PENDING,), "dequeue", "dequeue", (RUNNING,), "one more attempt, new lease token"),
    Transition((RUNNING,), "complete", "complete (with the token)", (COMPLETED,)),
    Transition(
        (RUNNING,), "fail", "fail (with the token), attempts left", (INVISIBLE, PENDING), "Invisible during a back-off"
    ),
    Transition((RUNNING,), "fail", "fail (with the token), no attempts left or `final=True`", (ERRORED,)),
    Transition((RUNNING,), "release", "release (with the token)", (PENDING,), "the attempt does not count"),
    Transition((RUNNING,), "expire", "lease expired, attempts left", (PENDING,)),
    Transition((RUNNING,), "expire", "lease expired, no attempts left", (ERRORED,)),
    Transition((RUNNING,), "extend", "extend (with the token)", (RUNNING,), "no new version, no event"),
    Transition((INVISIBLE, PENDING, RUNNING), "cancel", "cancel", (CANCELLED,)),
    Transition(
        (INVISIBLE, PENDING), "reschedule", "reschedule (new `due`, new `deadline`, or both)", (INVISIBLE, PENDING)
    ),
    Transition((ERRORED,), "redrive", "redrive", (PENDING,), "attempts are counted from zero again"),
    Transition(FINAL, "retire", "the retention is over", (None,)),
)


def describe_sources(script: str) -> str:
    """Return the states that ``script`` starts from, as text: "invisible, pending or running"."""
    labels = [state.label for row in TRANSITIONS if row.script == script for state in row.before if state]
    return " or ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))
