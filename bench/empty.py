"""What an empty dequeue costs the server, filtered or not, against a PING that the same client sends.

The first one after a message calls the script; those after it only ask whether anything is ready. The row is of the
latter, which is what polling is made of; the details have both.
"""

from collections.abc import Callable
from statistics import median
from typing import Any

from bench.figures import Figure, Scale
from bench.server import BenchServer
from tickwheel import Queue, Tickwheel
from tickwheel.plan import Request

FILTERS: dict[str, dict[str, str] | None] = {
    "not filtered": None,
    "one pair": {"region": "eu"},
    "three pairs": {"region": "eu", "gpu": "a100", "tier": "gold"},
}
BLOCK = 250
FIRST = "the first"


def empty(scale: Scale) -> list[Figure]:
    """Every call is sent after the answer to the one before. The kinds take turns in short blocks: what a call costs
    depends on which cores the kernel has put client and server, and that changes in between."""
    blocks = scale.size(20, 1)
    worst: list[float] = []
    first: list[float] = []
    costs: dict[str, list[float]] = {}
    with BenchServer() as server, Tickwheel(server.url, drive=False) as tickwheel:
        calls: dict[str, Callable[[], Any]] = {
            "PING": lambda: tickwheel._io.round([Request(0, command=("PING",))]),
        }
        for kind, exclusive_key in (("plain", None), ("exclusive", "project")):
            queue = tickwheel.create_queue(kind, exclusive_key=exclusive_key)
            for name, where in FILTERS.items():
                calls[f"{kind}, {name}"] = lambda queue=queue, where=where: queue.dequeue(where=where)  # type: ignore[misc]
                calls[f"{kind}, {name}, {FIRST}"] = lambda queue=queue, where=where: _first(tickwheel, queue, where)  # type: ignore[misc]
        for call in calls.values():
            call()
        for _ in range(scale.runs()):
            found = {name: median(block) for name, block in _in_turns(server, calls, blocks).items()}
            for name, us in found.items():
                costs.setdefault(name, []).append(us)
            ping_us = found.pop("PING")
            worst.append(max(us for name, us in found.items() if FIRST not in name) / ping_us)
            first.append(max(found.values()) / ping_us)
    return [
        Figure(
            "empty",
            "empty dequeue, filtered or not, server CPU",
            "PING",
            worst,
            3,
            details={
                "calls_of_a_kind": blocks * BLOCK,
                "us": {name: round(median(us), 2) for name, us in costs.items()},
                "value_is": "the dearest kind of each run, all but the first after a message",
                "first_after_a_message": round(median(first), 2),
            },
        )
    ]


def _first(tickwheel: Tickwheel, queue: Queue, where: dict[str, str] | None) -> None:
    """As if the call before had found something."""
    tickwheel._core.idle.clear()
    queue.dequeue(where=where)


def _in_turns(server: BenchServer, calls: dict[str, Callable[[], Any]], blocks: int) -> dict[str, list[float]]:
    """Microseconds of one call of each kind, block by block."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(blocks):
        for name, call in calls.items():
            before = server.process_cpu_us()
            for _ in range(BLOCK):
                call()
            found[name].append((server.process_cpu_us() - before) / BLOCK)
    return found
