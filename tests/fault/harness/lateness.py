"""The lateness of messages, and the time from a fault until all are in time again, computed from the events."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

# The limit of "in time" on a machine with two cores and other load: without any bug, up to 1.8 s occurred. Without
# a leader, messages are later than this limit, because a takeover follows only after the session time-out of 4 s.
IN_TIME_MS = 2_000


@dataclass(frozen=True, slots=True)
class Wait:
    """A message that was due at ``due_ms`` and Invisible until ``over_ms``, or ``inf`` if the wait did not end."""

    due_ms: float
    over_ms: float


def spread_ms(transitions: list[list[OutboxTransition]]) -> dict[str, float]:
    """Return the median, the 99th percentile and the maximum of the lateness in ms."""
    late = sorted(step.lateness_ms or 0 for shard in transitions for step in shard if _is_promotion(step))
    if not late:
        return {}
    return {"p50": late[len(late) // 2], "p99": late[len(late) * 99 // 100], "max": late[-1]}


def waits(transitions: list[list[OutboxTransition]]) -> Iterator[Wait]:
    """Yield all waits, including waits that a call ended, and waits that did not end."""
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


def recovery_s(all_waits: list[Wait], since_ms: float, until_ms: float = inf) -> float | None:
    """Return the seconds from a fault until all messages are in time again: until the end of the last late wait.

    Returns ``inf`` if a wait did not end, and None if no message was due. The next fault is at ``until_ms``; messages
    that are due later belong to the next fault.
    """
    due = [wait for wait in all_waits if since_ms <= wait.due_ms < until_ms]
    if not due:
        return None
    if any(wait.over_ms == inf for wait in due):
        return inf
    late = [over for wait in due if (over := min(wait.over_ms, until_ms)) - wait.due_ms > IN_TIME_MS]
    return (max(late) - since_ms) / 1000 if late else 0.0


def _is_promotion(step: OutboxTransition) -> bool:
    return step.from_state is State.INVISIBLE and step.to_state is State.PENDING and step.lateness_ms is not None
