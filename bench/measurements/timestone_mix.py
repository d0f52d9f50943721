"""Timestone's published mix on this machine, load generator included, and the highest share of its rates that it bears.

Published (Netflix, September 2022): 1,200 messages enqueued a second with a p99 of 25 ms, 30,000 dequeue requests a
second with a p99 of 45 ms, 25 for each message, so that most of them find nothing; and bursts of 5,000 with 85 ms.

As real producers and workers do it here, grouped and in batches: a producer sends what falls into 10 ms in one call; a
dequeue call asks for ten messages, so that 3,000 calls a second ask for as much as 30,000 requests for one; and ten
calls are made at once, as by a host for its idle workers. Both are planned and open loops: every latency counts from
when its call was planned (a message's own time, for an enqueue), so the linger of the batch is in it, and so is
whatever the generator itself was late. The first fifth of a run is not counted. What is found is run for a millisecond
and completed, a batch at once.
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
from tickwheel.operations.delete_namespace import delete_namespace

ENQUEUE_MS, DEQUEUE_MS = 25, 45
# Shares of the published rates, in percent, between which it is looked for where it breaks.
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
    """Through one process of the service, and beside it without one, straight to the server."""
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
    goals = f"with a p99 of {ENQUEUE_MS} ms for enqueues and {DEQUEUE_MS} ms for dequeues"
    at_full_rates, at_bursts = "of the service at Timestone's rates: p99", "in bursts of 5,000 messages a second: p99"
    return [
        Measurement(
            "timestone_share", f"{share} the service sustains {goals}", "%", shares, 50, at_least=True, details=about
        ),
        Measurement("timestone_enqueue", f"enqueue latency {at_full_rates}", "ms", _column(at_full, 0), ENQUEUE_MS),
        Measurement("timestone_dequeue", f"dequeue latency {at_full_rates}", "ms", _column(at_full, 1), DEQUEUE_MS),
        Measurement("timestone_bursts", f"enqueue latency of the service {at_bursts}", "ms", [in_bursts[0]], None),
        Measurement(
            "timestone_bursts_dequeue", f"dequeue latency of the service {at_bursts}", "ms", [in_bursts[1]], None
        ),
        Measurement(
            "timestone_direct_share",
            f"{share} clients without the service sustain {goals}",
            "%",
            direct_shares,
            None,
            details={"probes": direct.probes},
        ),
    ]


class _Mix:
    """The mix by one URL, at any share of its rates. ``probes`` is all that was measured."""

    def __init__(self, server: str, url: str, scale: Scale) -> None:
        self._server = server
        self._url = url
        self._quick = scale.quick
        self.probes: list[dict[str, Any]] = []

    def p99(self, scenario: Path, percent: int) -> tuple[float, float]:
        """Milliseconds of enqueue and dequeue."""
        # Each in a namespace of its own: what an overload has left is not the next one's to find.
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
        """The highest share, in percent, at which both hold; shares above one that fails are not looked at."""
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
        """p99 of all dequeue calls, in seconds: those that found something, and the empty ones."""
        return float(outcome.measurements.combined(("dequeue", "dequeue empty")).get_value_at_percentile(99)) / 1e6


def _scenario(folder: Path, length: int, bursts: str) -> Path:
    path = folder / f"timestone{'-bursts' if bursts else ''}.toml"
    path.write_text(_SCENARIO.format(length=length, warm_up=length // 5, bursts=bursts))
    return path


def _column(pairs: list[tuple[float, float]], index: int) -> list[float]:
    return [pair[index] for pair in pairs]
