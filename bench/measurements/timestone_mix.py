"""Timestone's published load on this machine, and the highest share of its rates that the machine sustains.

Timestone is Netflix's priority queue. In September 2022, Netflix published 1,200 enqueued messages a second with a p99
of 25 ms, 30,000 dequeue requests a second with a p99 of 45 ms, and bursts of 5,000 messages a second with a p99 of 85
ms. There are 25 dequeue requests for each message, so most requests return no message.

The load is grouped, like the load of real producers and workers. A producer collects messages for 10 ms and sends them
in one call. A dequeue call requests ten messages, so 3,000 calls a second correspond to 30,000 requests a second for
one message each. Ten dequeue calls start at once, like those of a host for its idle workers. Calls start at planned
times, whether earlier calls are answered or not. The latency of a dequeue counts from the planned time of its call,
that of an enqueue from the planned time of the message. So latencies include the wait for the rest of a batch, and
delays of the load generator. The first fifth of a run is not counted. A worker runs each message for a millisecond, and
completes a batch in one call. The load generator runs on the same machine.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Measurement, Scale
from services.serving_program import SERVE, ServingProgram
from tickwheel import Tickwheel, aio
from tickwheel.load.run.run import Settings, run
from tickwheel.load.run.run_result import RunResult
from tickwheel.load.scenario.source import Source
from tickwheel.operations.removal.delete_namespace import delete_namespace

ENQUEUE_MS, DEQUEUE_MS = 25, 45
# The step and the maximum of the search for the breaking point, in percent of the published rates.
_STEP, _MAX = 5, 200
_SCENARIO = """
about = "Timestone's published mix"
length = "{length}s"
warm_up = "{warm_up}s"
drain = "1s"
producers = {{ batch = 100, linger = "10ms" }}

[[queue]]
name = "work"
arrivals = 1200
{bursts}
run = "1ms"
polls = {{ per_second = 3000, batch = 10, together = 10 }}
"""
_BURSTS = 'bursts = { every = "5s", length = "1s", rate = 5000 }'


def timestone_mix(scale: Scale) -> list[Measurement]:
    """Measure the load through one process of the service, and directly on the server."""
    length, full = scale.size(15, 1), scale.size(100, _STEP)
    with BenchServer() as server, tempfile.TemporaryDirectory() as folder:
        steady, bursts = _scenario(Path(folder), length, ""), _scenario(Path(folder), length, _BURSTS)
        with ServingProgram(server.folder, *SERVE, server.url) as serving:
            service = _Mix(server.url, serving.url, scale)
            at_full = [service.p99(steady, full) for _ in range(scale.runs(5))]
            in_bursts = service.p99(bursts, full)
            shares = [service.breaking_share(steady) for _ in range(scale.runs(3))]
        direct = _Mix(server.url, server.url, scale)
        direct_shares = [direct.breaking_share(steady)]
    about: dict[str, Any] = {
        "seconds": length,
        "enqueues_per_s": 1_200,
        "dequeue_calls_per_s": 3_000,
        "messages_of_a_call": 10,
        "calls_at_once": 10,
        "aof": "off",
        "cores": os.cpu_count(),
        "probes": service.probes,
    }
    share = "highest share of Timestone's rates that"
    goals = (
        f"with 2.5 dequeue calls (each for ten messages) for each message and"
        f" a p99 of {ENQUEUE_MS} ms for enqueues and {DEQUEUE_MS} ms for dequeues"
    )
    at_full_rates, at_bursts = "of the service at Timestone's rates: p99", "in bursts of 5,000 messages a second: p99"
    return [
        Measurement(
            "timestone_share", f"{share} the service sustains, {goals}", "%", shares, 50, at_least=True, details=about
        ),
        Measurement("timestone_enqueue", f"enqueue latency {at_full_rates}", "ms", _column(at_full, 0), ENQUEUE_MS),
        Measurement("timestone_dequeue", f"dequeue latency {at_full_rates}", "ms", _column(at_full, 1), DEQUEUE_MS),
        Measurement("timestone_bursts", f"enqueue latency of the service {at_bursts}", "ms", [in_bursts[0]], None),
        Measurement(
            "timestone_bursts_dequeue", f"dequeue latency of the service {at_bursts}", "ms", [in_bursts[1]], None
        ),
        Measurement(
            "timestone_direct_share",
            f"{share} clients without the service sustain, {goals}",
            "%",
            direct_shares,
            None,
            details={"probes": direct.probes},
        ),
    ]


class _Mix:
    """Runs the load on one URL at any share of the rates. ``probes`` contains all results."""

    def __init__(self, server: str, url: str, scale: Scale) -> None:
        self._server = server
        self._url = url
        self._quick = scale.quick
        self.probes: list[dict[str, Any]] = []

    def p99(self, scenario: Path, percent: int) -> tuple[float, float]:
        """Run the load once. Return the p99 of enqueues and of dequeues in milliseconds."""
        # A new namespace for each run, so that messages left by an overload do not affect the next run.
        namespace = f"timestone-{len(self.probes)}-{os.urandom(2).hex()}"
        with Tickwheel(self._server, namespace=namespace, drive=True) as tickwheel:
            outcome = asyncio.run(self._run(Source(str(scenario), scale=percent / 100), namespace))
            tickwheel._run(delete_namespace(tickwheel._context))
        enqueue, dequeue = outcome.measurements.percentile("enqueue", 0.99), self._dequeue(outcome)
        p99_ms = (1e3 * (enqueue or 0.0), 1e3 * dequeue)
        self.probes.append(
            {
                "percent": percent,
                "enqueue_p99_ms": round(p99_ms[0], 2),
                "dequeue_p99_ms": round(p99_ms[1], 2),
                "cpu": {name: round(used, 2) for name, used in outcome.cpu.items()},
                "bottlenecks": outcome.bottlenecks,
            }
        )
        return p99_ms

    def breaking_share(self, scenario: Path) -> float:
        """Return the highest share in percent that meets both goals, by a binary search."""
        low, high = 0, (_STEP if self._quick else _MAX) // _STEP
        while low < high:
            middle = (low + high + 1) // 2
            enqueue, dequeue = self.p99(scenario, middle * _STEP)
            holds = enqueue <= ENQUEUE_MS and dequeue <= DEQUEUE_MS
            low, high = (middle, high) if holds else (low, middle - 1)
        return float(low * _STEP)

    async def _run(self, source: Source, namespace: str) -> RunResult:
        async with aio.Tickwheel(self._url, namespace=namespace, drive=False) as tickwheel:
            return await run(Settings(source, namespace, self._url), tickwheel, asyncio.Event())

    @staticmethod
    def _dequeue(outcome: RunResult) -> float:
        """Return the p99 of all dequeue calls in seconds, including empty calls."""
        return float(outcome.measurements.combined(("dequeue", "dequeue empty")).get_value_at_percentile(99)) / 1e6


def _scenario(folder: Path, length: int, bursts: str) -> Path:
    path = folder / f"timestone{'-bursts' if bursts else ''}.toml"
    path.write_text(_SCENARIO.format(length=length, warm_up=length // 5, bursts=bursts))
    return path


def _column(pairs: list[tuple[float, float]], index: int) -> list[float]:
    return [pair[index] for pair in pairs]
