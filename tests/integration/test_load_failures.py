"""Loads on a server that refuses calls or stalls: the measurements of such runs, and their end."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from time import monotonic

import pytest

from tests.unit.load_scenarios import one_queue
from tickwheel import aio
from tickwheel.load.run import run
from tickwheel.load.run.measurements import Measurements
from tickwheel.load.run.poller import Poller
from tickwheel.load.run.processes import LoadProcesses
from tickwheel.load.run.producer import Producer
from tickwheel.load.run.run_result import RunResult
from tickwheel.load.run.worker import Worker
from tickwheel.load.scenario.distributions import constant
from tickwheel.load.scenario.scenario import Cancel, Polls
from tickwheel.load.scenario.source import Source
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

# Longer than any call while the server stalls.
PAUSE_MS = 4_000


@asynccontextmanager
async def queue(server: PrivateServer) -> AsyncIterator[tuple[aio.Tickwheel, aio.Queue]]:
    namespace = f"load-{os.urandom(6).hex()}"
    async with aio.Tickwheel(server.url, namespace=namespace, drive=False) as tickwheel:
        yield tickwheel, await tickwheel.create_queue("q")
    server.clear(namespace)


async def stall(server: PrivateServer) -> None:
    with server.client() as client:
        await asyncio.to_thread(client.execute_command, "CLIENT", "PAUSE", PAUSE_MS, "ALL")


def count(meter: Measurements, name: str) -> int:
    return int(meter.histograms[name].get_total_count())


def test_failed_calls_count_in_the_latencies(tickwheel_server: PrivateServer) -> None:
    async def produce() -> Measurements:
        meter = Measurements(1.0)
        async with queue(tickwheel_server) as (tickwheel, blocked):
            await blocked.block(enqueue=True)
            scenario = replace(one_queue(rate=100.0), length_s=0.5)
            await Producer(scenario, tickwheel, meter, monotonic(), "load").run(asyncio.Event())
        return meter

    meter = asyncio.run(produce())
    assert meter.counts["enqueue errors"] > 10
    assert count(meter, "enqueue") == meter.counts["enqueue errors"]


def test_each_late_cancel_of_a_batch_is_reported(tickwheel_server: PrivateServer) -> None:
    async def produce() -> tuple[Measurements, dict[str, int]]:
        meter = Measurements(1.0)
        async with queue(tickwheel_server) as (tickwheel, mine):
            scenario = one_queue(rate=100.0, cancel=Cancel(1.0, constant(1.0)))
            scenario = replace(scenario, length_s=0.5, producer_batch=50, linger_s=0.3)
            producing = asyncio.create_task(
                Producer(scenario, tickwheel, meter, monotonic(), "load").run(asyncio.Event())
            )
            await mine.complete_many(await mine.dequeue(7, wait=timedelta(seconds=20)))
            await producing
            return meter, await mine.counts()

    meter, counts = asyncio.run(produce())
    assert counts["completed"] >= 2
    assert meter.counts["cancels too late"] == counts["completed"]
    assert meter.counts["cancelled"] == counts["cancelled"]
    assert count(meter, "cancel") == counts["cancelled"] + counts["completed"]


@pytest.mark.parametrize("concurrency", [1, 7])
def test_polls_without_an_answer_are_counted_with_the_time_of_their_wait(
    tickwheel_server: PrivateServer, concurrency: int
) -> None:
    async def poll() -> tuple[Measurements, float]:
        meter = Measurements(1.0)
        async with queue(tickwheel_server) as (tickwheel, _):
            await stall(tickwheel_server)
            start = monotonic()
            scenario = one_queue(polls=Polls(100.0, 1, concurrency))
            worker = Worker(scenario, scenario.workers[0], "polls", tickwheel, meter, start, "load")
            polling = asyncio.create_task(Poller(scenario, scenario.queues[0], worker, 0, 1).run())
            # More polls than may be in flight at once.
            await asyncio.wait({polling}, timeout=1.0)
            polling.cancel()
            await asyncio.wait({polling})
            return meter, monotonic() - start

    meter, seconds = asyncio.run(poll())
    assert 90 <= meter.counts["polls unanswered"] <= 100 * seconds + concurrency
    assert count(meter, "dequeue") == meter.counts["polls unanswered"]
    longest = meter.percentile("dequeue", 1.0)
    assert longest is not None
    assert longest > 0.9


@pytest.mark.parametrize("bound", ["interrupt", "for"])
def test_a_run_ends_though_the_server_does_not_report_the_counts_of_its_queues(
    tickwheel_server: PrivateServer, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_SAMPLE_TIMEOUT_S", 0.5)

    async def watch() -> tuple[RunResult, float]:
        scenario = replace(one_queue(), max_seconds=0.5 if bound == "for" else None)
        outcome = RunResult(scenario, Measurements(0.1), "here", "load")
        stopping, sampled = asyncio.Event(), asyncio.Event()
        async with queue(tickwheel_server) as (tickwheel, _):
            settings = run.Settings(Source("timestone"), "load")
            watching = run._RunMonitor(settings, scenario, tickwheel, LoadProcesses([], {}), outcome, 0.1)
            running = asyncio.create_task(watching.run(stopping, lambda _: sampled.set()))
            await sampled.wait()
            await stall(tickwheel_server)
            began = monotonic()
            if bound == "interrupt":
                stopping.set()
            await running
            return outcome, monotonic() - began

    outcome, seconds = asyncio.run(watch())
    assert outcome.interrupted == (bound == "interrupt")
    assert seconds < 0.75 * PAUSE_MS / 1e3
    assert len(outcome.samples) >= 2
