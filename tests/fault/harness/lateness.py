"""How late messages became deliverable, and how soon after a fault all were in time again. Pure, from the events."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

# In time, on a machine of two cores that does other things too: campaigns beside other work had up to 1.8 s with
# nothing amiss. Where nobody drives much is later than that, as nobody follows a lost session of 4 s sooner.
IN_TIME_MS = 2_000


@dataclass(frozen=True, slots=True)
class Wait:
    """A message was Invisible until ``over_ms``, ``inf`` where it still is, and due at ``due_ms``."""

    due_ms: float
    over_ms: float


def spread_ms(transitions: list[list[OutboxTransition]]) -> dict[str, float]:
    """Median, 99th of a hundred and worst."""
    late = sorted(step.lateness_ms or 0 for shard in transitions for step in shard if _is_promotion(step))
    if not late:
        return {}
    return {"p50": late[len(late) // 2], "p99": late[len(late) * 99 // 100], "max": late[-1]}


def waits(transitions: list[list[OutboxTransition]]) -> Iterator[Wait]:
    """All of them, those too that were ended by a call, or by nothing."""
    for shard in transitions:
        due: dict[str, float] = {}
        for step in shard:
            until = due.pop(step.id, None)
            if _is_promotion(step):
                yield Wait(step.time_ms - (step.lateness_ms or 0), step.time_ms)
            elif until is not None:
                yield Wait(until, step.time_ms)
            if step.to_state is State.INVISIBLE:
                due[step.id] = step.until_ms
        yield from (Wait(until, inf) for until in due.values())


def recovery_s(found: list[Wait], since_ms: float, until_ms: float = inf) -> float | None:
    """Seconds from a fault until all that is due after it is in time: until the last that was late was over.

    ``inf`` where one never was; None where nothing was due. The next fault is at ``until_ms``: what is due later, or is
    late only then, is that one's.
    """
    due = [wait for wait in found if since_ms <= wait.due_ms < until_ms]
    if not due:
        return None
    if any(wait.over_ms == inf for wait in due):
        return inf
    late = [over for wait in due if (over := min(wait.over_ms, until_ms)) - wait.due_ms > IN_TIME_MS]
    return (max(late) - since_ms) / 1000 if late else 0.0


def _is_promotion(step: OutboxTransition) -> bool:
    return step.from_state is State.INVISIBLE and step.to_state is State.PENDING and step.lateness_ms is not None
