"""Filtered dequeues: by a rare pair, by two pairs that few messages have at once, and past blocked messages."""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from itertools import count as numbers
from statistics import median
from typing import Any

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Measurement, Scale
from bench.measurements.blocked_messages import KEY, LONG, add_free, block
from bench.measurements.message_life import BATCH, PAYLOAD
from tickwheel import NewMessage, Tickwheel
from tickwheel.client import Queue

LIMITS = (1, 20)
CALLS = 20
# Half of the messages have even and right, half odd and left, and only the last message has even and left.
HARDLY_MET, NEVER_MET = {"half": "even", "side": "left"}, {"half": "odd", "side": "right"}


class CallTimer:
    """Measures the server CPU time of single calls, and of the longest call of each kind."""

    def __init__(self, server: BenchServer) -> None:
        self._server = server
        self._stat = server.redis
        self.longest_ms: dict[str, float] = {}

    def calls(self, name: str, queue: Queue, limit: int, where: dict[str, str] | None, calls: int) -> float:
        """Return the microseconds of one dequeue. Each dequeue must return ``limit`` messages."""
        spent: list[float] = []
        taken: list[Any] = []
        for _ in range(calls):
            before = self._server.process_cpu_us()
            messages = queue.dequeue(limit, where=where, lease=LONG)
            spent.append(self._server.process_cpu_us() - before)
            assert len(messages) == limit, f"{name}: {len(messages)} of {limit} messages were delivered"
            taken += messages
        self.note(name, max(spent))
        for first in range(0, len(taken), BATCH):
            queue.complete_many(taken[first : first + BATCH])
        # The mean of the middle half: calls that the kernel interrupted do not count, and no call decides alone.
        middle = sorted(spent)[calls // 4 : calls - calls // 4]
        return sum(middle) / len(middle)

    def note(self, name: str, us: float) -> None:
        self.longest_ms[name] = max(self.longest_ms.get(name, 0.0), us / 1000)


def filtered_dequeue(scale: Scale) -> list[Measurement]:
    """Dequeue with a filter of one pair that 1 in 1,000 pending messages has. Each message has three pairs."""
    pending, kinds = scale.size(300_000, 2_000), scale.size(1_000, 10)
    costs: dict[str, list[float]] = {}
    with BenchServer() as server, Tickwheel(server.url, drive=False) as tickwheel:
        queue = tickwheel.create_queue("filtered")
        _fill_plain(queue, pending, kinds)
        timer = CallTimer(server)
        for run in range(scale.runs() + scale.warmup_runs):
            for limit in LIMITS:
                calls = min(CALLS, pending // kinds // (2 * limit))
                filters: dict[str, dict[str, str] | None] = {
                    f"unfiltered, limit {limit}": None,
                    f"1 in {kinds}, limit {limit}": {"kind": f"kind-{run * 2 + limit % 2}"},
                }
                for name, where in filters.items():
                    costs.setdefault(name, []).append(timer.calls(name, queue, limit, where, calls))
    # The first run is the warm-up.
    samples = {name: us[-scale.runs() :] for name, us in costs.items()}
    names = list(samples)
    ratios = [
        [rare / plain for plain, rare in zip(samples[names[at]], samples[names[at + 1]], strict=True)] for at in (0, 2)
    ]
    return [
        Measurement(
            "filtered",
            f"server CPU time of a dequeue whose filter matches 1 in {kinds:,} of {pending:,} pending messages, "
            "relative to a dequeue without a filter",
            "×",
            [max(pair) for pair in zip(*ratios, strict=True)],
            2,
            details={
                "call_us": {name: round(median(us), 2) for name, us in samples.items()},
                "ratios": {
                    f"limit {limit}": round(median(ratio), 3) for limit, ratio in zip(LIMITS, ratios, strict=True)
                },
                "value_is": "the higher ratio of each run, of both limits",
                "longest_call_ms": _round_values(timer.longest_ms),
            },
        )
    ]


def _fill_plain(queue: Queue, pending: int, kinds: int) -> None:
    for first in range(0, pending, BATCH):
        queue.enqueue_many(
            NewMessage(
                PAYLOAD,
                metadata={
                    "kind": f"kind-{n % kinds}",
                    "half": "even" if n // kinds % 2 else "odd",
                    "region": ("eu", "us", "asia")[n % 3],
                },
            )
            for n in range(first, first + BATCH)
        )


def exclusive_filtered_dequeue(scale: Scale) -> list[Measurement]:
    """Dequeue with a filter of one pair from an exclusive queue, with matching messages that are blocked."""
    behind, free = scale.size(100_000, 1_000), scale.size(5_000, 500)
    cases = {
        "none": 0,
        "behind 1 value": 1,
        "behind 1,000 values": scale.size(1_000, 10),
        "behind 20,000 values": scale.size(20_000, 100),
    }
    costs: dict[str, dict[str, list[float]]] = {f"limit {limit}": {name: [] for name in cases} for limit in LIMITS}
    longest: dict[str, float] = {}
    metadata = {"region": "eu", "gpu": "a100"}
    fresh = numbers()
    with ExitStack() as stack:
        shards: dict[str, tuple[CallTimer, Queue]] = {}
        for name, values in cases.items():
            server = stack.enter_context(BenchServer())
            tickwheel = stack.enter_context(Tickwheel(server.url, drive=False))
            queue = tickwheel.create_queue("filtered", exclusive_key=KEY)
            block(queue, values, behind if values else 0, metadata)
            add_free(queue, free, fresh, metadata)
            timer = CallTimer(server)
            shards[name] = timer, queue
            # The first walk is measured apart from the later ones.
            before = server.process_cpu_us()
            queue.complete_many(queue.dequeue(1, where={"region": "eu"}))
            timer.note(f"{name}: the first walk, all its calls", server.process_cpu_us() - before)
        for _ in range(scale.runs()):
            for limit in LIMITS:
                for name, (timer, queue) in shards.items():
                    us = timer.calls(f"{name}: limit {limit}", queue, limit, {"region": "eu"}, CALLS)
                    costs[f"limit {limit}"][name].append(us)
            for _, queue in shards.values():
                add_free(queue, sum(LIMITS) * CALLS, fresh, metadata)
        for timer, _ in shards.values():
            longest |= timer.longest_ms
    ratios = {
        limit: {
            name: [us / none for us, none in zip(samples, by_case["none"], strict=True)]
            for name, samples in by_case.items()
        }
        for limit, by_case in costs.items()
    }
    per_run = zip(*(samples for by_case in ratios.values() for samples in by_case.values()), strict=True)
    return [
        Measurement(
            "exclusive_filtered",
            f"server CPU time of a filtered dequeue from an exclusive queue with {behind:,} blocked messages "
            "that match, relative to none",
            "×",
            [max(run) for run in per_run],
            1.5,
            details={
                "call_us": {
                    limit: {name: round(median(us), 2) for name, us in by_case.items()}
                    for limit, by_case in costs.items()
                },
                "ratios": {
                    limit: {name: round(median(samples), 3) for name, samples in by_case.items()}
                    for limit, by_case in ratios.items()
                },
                "value_is": "the highest ratio of each run, of all limits and numbers of values",
                "longest_call_ms": _round_values(longest),
            },
        )
    ]


def longest_call(scale: Scale) -> list[Measurement]:
    """Measure the most expensive calls: filters by two pairs that few messages have at once, and large batches."""
    pending = scale.size(300_000, 2_000)
    spread = scale.size(1_000, 50)
    samples: dict[str, list[float]] = {}
    for name, exclusive in (("plain", None), ("exclusive", KEY)):
        with BenchServer() as server, Tickwheel(server.url, drive=False) as tickwheel:
            queue = tickwheel.create_queue(name, exclusive_key=exclusive)
            _fill_apart(queue, pending if exclusive is None else pending // 3, spread)
            for run in range(scale.runs()):
                for label, ms in _longest_calls(server, queue, min(1_000, spread), run).items():
                    samples.setdefault(f"{name}: {label}", []).append(ms)
    longest = {label: median(ms) for label, ms in samples.items()}
    return [
        Measurement(
            "longest_call",
            "server CPU time of the longest script call among filtered dequeues and calls of 1,000 messages",
            "ms",
            list(longest.values()),
            None,
            value=max(longest.values()),
            details={
                "ms": _round_values(longest),
                "pending": pending,
                "value_is": "the longest kind of call; the time of a kind is the median of its runs",
            },
        )
    ]


def _longest_calls(server: BenchServer, queue: Queue, batch: int, run: int) -> dict[str, float]:
    """Return the time of the longest script call of each kind in ms. Enqueue and cancel use ``batch`` messages."""
    few_ms, few = _longest_ms(server, lambda: queue.dequeue(1, where=HARDLY_MET))
    none_ms, none = _longest_ms(server, lambda: queue.dequeue(1, where=NEVER_MET))
    many_ms, many = _longest_ms(server, lambda: queue.dequeue(1_000, where={"half": "even"}))
    request_ms, requested = _longest_ms(server, lambda: queue.dequeue(1_000, request_id=f"bench:{run}"))
    created_ms, created = _longest_ms(server, lambda: queue.enqueue_many(_batch(batch)))
    assert (len(few) <= 1, none, len(created)) == (True, [], batch)
    complete_ms, _ = _longest_ms(server, lambda: queue.complete_many([*few, *many, *requested]))
    of_one = queue.enqueue_many(_batch(batch, "one"))
    value = "one" if queue.config().exclusive_key else None
    cancel_ms, _ = _longest_ms(server, lambda: queue.cancel_many([result.id for result in of_one], value))
    return {
        "two pairs that only one message has": few_ms,
        "two pairs that no message has": none_ms,
        "one pair, limit 1,000": many_ms,
        "with a request id, limit 1,000": request_ms,
        f"enqueue {batch:,}": created_ms,
        "complete all delivered messages": complete_ms,
        f"cancel {batch:,}": cancel_ms,
    }


def _longest_ms(server: BenchServer, action: Callable[[], Any]) -> tuple[float, Any]:
    """Run the action. Return its longest script call in milliseconds of server CPU time, and its result."""
    server.redis.config_set("commandlog-execution-slower-than", 0)
    server.redis.config_set("commandlog-slow-execution-max-len", 10_000)
    server.redis.execute_command("COMMANDLOG", "RESET", "slow")
    before = server.process_cpu_us()
    answer = action()
    spent = server.process_cpu_us() - before
    log = server.redis.execute_command("COMMANDLOG", "GET", -1, "slow")
    calls = [entry[2] for entry in log if entry[3][0].upper() == b"EVALSHA"]
    # The log has the duration of each call, including waits. So the CPU time is divided in proportion to it.
    return max(calls) * min(1.0, spent / sum(calls)) / 1000, answer


def _batch(count: int, value: str | None = None) -> list[NewMessage]:
    """Return messages with one value, or each with a different value."""
    return [NewMessage(PAYLOAD, metadata={KEY: value or f"project-{n}", "half": "neither"}) for n in range(count)]


def _fill_apart(queue: Queue, pending: int, values: int) -> None:
    """Enqueue messages. Half have the first pair of `HARDLY_MET`, half the second, and only the last has both."""
    for first in range(0, pending, BATCH):
        queue.enqueue_many(
            NewMessage(
                PAYLOAD,
                metadata={
                    KEY: f"project-{n % values}",
                    "half": "even" if n % 2 == 0 or n == pending - 1 else "odd",
                    "side": "right" if n % 2 == 0 else "left",
                },
                deadline=timedelta(seconds=n),
            )
            for n in range(first, first + BATCH)
        )


def _round_values(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}
