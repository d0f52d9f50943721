"""Measures the CPU time to add and fire one timer in `timing_wheel`, with few and with many timers.

There are two settings. Both spread the delays evenly, and add all timers before the first timer is due. With
`same_delays`, delays are up to 15 minutes for any number of timers. With `same_rate`, one timer is due each
millisecond: with a hundred times as many timers, delays are a hundred times as long, and the wheel needs one more
level.
"""

import json
import random
import statistics
import time
from typing import Any

from timing_wheel import TimingWheel

FEW = 10_000
MANY = 1_000_000
ROUNDS = 5
BATCH = 1_000
START_MS = 1_700_000_000_000
LONGEST_DELAY_MS = 15 * 60 * 1_000


def measure(few: int = FEW, many: int = MANY, rounds: int = ROUNDS) -> dict[str, dict[str, Any]]:
    """Return the median CPU time per timer in nanoseconds for both numbers of timers, and their ratios.

    The garbage collector is on, like in any program.
    """
    return {
        "same_delays": _compare(few, many, rounds, LONGEST_DELAY_MS, LONGEST_DELAY_MS),
        "same_rate": _compare(few, many, rounds, few, many),
    }


def _compare(few: int, many: int, rounds: int, few_span_ms: int, many_span_ms: int) -> dict[str, Any]:
    few_ns: list[float] = []
    many_ns: list[float] = []
    # Few and many timers are measured in turns, so that a slower phase of the machine affects both.
    for seed in range(rounds):
        few_ns.append(statistics.median(_ns_per_timer(few, few_span_ms, seed) for _ in range(5)))
        many_ns.append(_ns_per_timer(many, many_span_ms, seed))
    few_median, many_median = statistics.median(few_ns), statistics.median(many_ns)
    return {
        f"ns_per_timer_at_{few}": round(few_median),
        f"ns_per_timer_at_{many}": round(many_median),
        "ratio": round(many_median / few_median, 3),
        "ratios": [round(many / few, 3) for few, many in zip(few_ns, many_ns, strict=True)],
    }


def _ns_per_timer(count: int, span_ms: int, seed: int) -> float:
    dice = random.Random(seed)
    times = [START_MS + dice.randint(1, span_ms) for _ in range(count)]
    wheel: TimingWheel[int] = TimingWheel(START_MS)
    fired = 0
    begin_ns = time.process_time_ns()
    for number, due_ms in enumerate(times):
        wheel.add(due_ms, number)
    while batch := wheel.advance(START_MS + span_ms, limit=BATCH):
        fired += len(batch)
    took_ns = time.process_time_ns() - begin_ns
    if fired != count or wheel:
        raise AssertionError(f"{fired} of {count} timers fired, {len(wheel)} left")
    return took_ns / count


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
