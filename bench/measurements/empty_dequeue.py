"""The server CPU time of an empty dequeue, with and without a filter, relative to a PING of the same client.

After a dequeue that returned a message, the first empty dequeue calls the script. The next dequeues use plain commands
to check whether a message may be ready. The row measures these later dequeues, because a client that polls mostly makes
such calls. The details of the row also contain the first dequeue.
"""

from collections.abc import Callable
from statistics import median
from typing import Any

from bench.harness.bench_server import BenchServer
from bench.harness.busy_cores import keep_cores_busy
from bench.harness.measurement import Measurement, Scale
from tickwheel import NewMessage, Queue, Tickwheel
from tickwheel.plan import Request

Calls = dict[str, Callable[[], Any]]
FILTERS: dict[str, dict[str, str] | None] = {
    "not filtered": None,
    "one pair": {"region": "eu"},
    "three pairs": {"region": "eu", "gpu": "a100", "tier": "gold"},
}
# These pairs match no filter, although two of them are in a filter.
OTHERS = {"region": "us", "gpu": "a100", "tier": "gold"}
# Half of the messages have the first pair, the other half the second.
NEVER_MEET = {"half": "odd", "side": "right"}
PENDING = 1_000
BLOCK = 250
FIRST = "the first"


def empty_dequeue(scale: Scale) -> list[Measurement]:
    """Measure all kinds of calls in turns, in short blocks. Each call starts after the answer to the previous call.

    Short blocks are necessary because the cost of a call depends on the cores to which the kernel assigns client and
    server, and the kernel changes the cores.
    """
    blocks, block = scale.size(20, 1), scale.size(BLOCK, 10)
    worst: list[float] = []
    first: list[float] = []
    asleep_ratios: list[float] = []
    costs: dict[str, list[float]] = {}
    with BenchServer() as server, Tickwheel(server.url, drive=False) as tickwheel:
        calls = _calls(tickwheel)
        for call in calls.values():
            call()
        for _ in range(scale.runs()):
            asleep_ratios.append(_max_ratio(_measure_in_turns(server, calls, max(1, blocks // 4), block)))
            with keep_cores_busy():
                costs_us = _measure_in_turns(server, calls, blocks, block)
            for name, us in costs_us.items():
                costs.setdefault(name, []).append(us)
            worst.append(_max_ratio(costs_us))
            first.append(_max_ratio(costs_us, FIRST))
        walks = _walk_costs(server, tickwheel, block)
    return [
        Measurement(
            "empty",
            "server CPU time of an empty dequeue that repeats an empty dequeue, with or without a filter",
            "PING",
            worst,
            3,
            details={
                "calls_of_a_kind": blocks * block,
                "us": {name: round(median(us), 2) for name, us in costs.items()},
                "value_is": "the most expensive kind of each run, except the first dequeue after a message",
                "cores": "kept awake: if they sleep between calls, a PING takes five times as much CPU time",
                "with_cores_asleep": round(median(asleep_ratios), 2),
                "first_after_a_message": round(median(first), 2),
                f"two_pairs_that_never_meet_in_{PENDING}_messages_us": walks,
            },
        )
    ]


def _calls(tickwheel: Tickwheel) -> Calls:
    calls: Calls = {"PING": lambda: tickwheel._io.round([Request(0, command=("PING",))])}
    for kind, exclusive_key in (("plain", None), ("exclusive", "project")):
        for pending in (0, PENDING):
            queue = tickwheel.create_queue(f"{kind}-{pending}", exclusive_key=exclusive_key)
            queue.enqueue_many(NewMessage(metadata=OTHERS | {"project": str(n)}) for n in range(pending))
            for name, where in FILTERS.items():
                if where is None and pending:
                    continue
                label = f"{kind}, {name}, {pending:,} pending"
                calls[label] = lambda queue=queue, where=where: queue.dequeue(where=where)  # type: ignore[misc]
                calls[f"{label}, {FIRST}"] = lambda queue=queue, where=where: _first(tickwheel, queue, where)  # type: ignore[misc]
    return calls


def _first(tickwheel: Tickwheel, queue: Queue, where: dict[str, str] | None) -> None:
    """Dequeue as if the previous call had returned a message."""
    tickwheel._context.heads.known_empty.clear()
    queue.dequeue(where=where)


def _max_ratio(costs_us: dict[str, float], which: str = "") -> float:
    """Return the cost of the most expensive kind of call, as a multiple of the cost of a PING.

    With ``which``, only first dequeues after a message count; by default, all others.
    """
    chosen = {name: us for name, us in costs_us.items() if name != "PING" and (FIRST in name) == bool(which)}
    return max(chosen.values()) / costs_us["PING"]


def _measure_in_turns(server: BenchServer, calls: Calls, blocks: int, block: int) -> dict[str, float]:
    """Return the microseconds of one call of each kind: the median of its blocks."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(blocks):
        for name, call in calls.items():
            call()
            before = server.process_cpu_us()
            for _ in range(block):
                assert not isinstance(answer := call(), list) or name == "PING" or answer == []
            samples[name].append((server.process_cpu_us() - before) / block)
    return {name: median(us) for name, us in samples.items()}


def _walk_costs(server: BenchServer, tickwheel: Tickwheel, calls: int) -> dict[str, float]:
    """Return the cost of an empty dequeue that must scan all messages: each has one of two pairs, and none has both."""
    costs_us = {}
    for kind, exclusive_key in (("plain", None), ("exclusive", "project")):
        queue = tickwheel.create_queue(f"{kind}-walk", exclusive_key=exclusive_key)
        queue.enqueue_many(
            NewMessage(metadata={"project": str(n)} | ({"half": "odd"} if n % 2 else {"side": "right"}))
            for n in range(PENDING)
        )
        before = server.process_cpu_us()
        for _ in range(calls):
            assert queue.dequeue(where=NEVER_MEET) == []
        costs_us[kind] = round((server.process_cpu_us() - before) / calls, 1)
    return costs_us
