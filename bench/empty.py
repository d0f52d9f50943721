"""What an empty dequeue costs the server, filtered or not, against a PING."""

from statistics import median

from bench.calibration import ping_us
from bench.figures import Figure, Scale
from bench.server import BenchServer
from tickwheel import Tickwheel

FILTERS: dict[str, dict[str, str] | None] = {
    "not filtered": None,
    "one pair": {"region": "eu"},
    "three pairs": {"region": "eu", "gpu": "a100", "tier": "gold"},
}


def empty(scale: Scale) -> list[Figure]:
    """Each call is sent after the answer to the one before, by the client as users have it."""
    calls = scale.size(5_000, 50)
    worst: list[float] = []
    pings: list[float] = []
    costs: dict[str, list[float]] = {}
    with BenchServer() as server, Tickwheel(server.url, drive=False) as tickwheel:
        queues = {
            "plain": tickwheel.create_queue("plain"),
            "exclusive": tickwheel.create_queue("exclusive", exclusive_key="project"),
        }
        for _ in range(scale.runs()):
            pings.append(ping_us(server, calls))
            found: list[float] = []
            for kind, queue in queues.items():
                for name, where in FILTERS.items():
                    queue.dequeue(where=where)
                    before = server.cpu_us()
                    for _ in range(calls):
                        queue.dequeue(where=where)
                    found.append((server.cpu_us() - before) / calls)
                    costs.setdefault(f"{kind}, {name}", []).append(found[-1])
            worst.append(max(found) / pings[-1])
    return [
        Figure(
            "empty",
            "empty dequeue, filtered or not, server CPU",
            "PING",
            worst,
            3,
            details={
                "calls": calls,
                "ping_us": [round(us, 2) for us in pings],
                "dequeue_us": {name: round(median(us), 2) for name, us in costs.items()},
                "value_is": "the dearest kind of each run",
            },
        )
    ]
