"""How late messages became deliverable, and how soon after a fault they were in time again. Pure, from the events."""

from collections.abc import Iterator

from tickwheel.record import State
from tickwheel.transitions import Transition

# In time, on a machine that does other things too.
IN_TIME_MS = 100


def spread_ms(transitions: list[list[Transition]]) -> dict[str, float]:
    """Median, 99th of a hundred and worst."""
    late = sorted(step.lateness_ms or 0 for shard in transitions for step in _promotions(shard))
    if not late:
        return {}
    return {"p50": late[len(late) // 2], "p99": late[len(late) * 99 // 100], "max": late[-1]}


def recovery_s(transitions: list[list[Transition]], since_ms: float) -> float | None:
    """Seconds from a fault to the first promotion in time of what was due after it, on the slowest shard;
    None where nothing was due any more.
    """
    found = []
    for shard in transitions:
        for step in _promotions(shard):
            late = step.lateness_ms or 0
            if late <= IN_TIME_MS and step.time_ms - late >= since_ms:
                found.append((step.time_ms - since_ms) / 1000)
                break
    return max(found, default=None)


def _promotions(transitions: list[Transition]) -> Iterator[Transition]:
    return (
        step
        for step in transitions
        if step.from_state is State.INVISIBLE and step.to_state is State.PENDING and step.lateness_ms is not None
    )
