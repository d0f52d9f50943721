"""One run of a load: create the queues, start and watch the processes, and merge their measurements."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

from tickwheel import InvalidArgument, TickwheelError, aio
from tickwheel.load.run.measurements import Measurements
from tickwheel.load.run.processes import LoadProcesses
from tickwheel.load.run.run_result import LIVE_STATES, RunResult, Sample
from tickwheel.load.run.worker import FOREIGN, ForeignMessages
from tickwheel.load.scenario import arrivals
from tickwheel.load.scenario.scenario import QueueLoad, Scenario
from tickwheel.load.scenario.source import Source
from tickwheel.redis.url import VARIABLE, redact
from tickwheel.runtime.chunks import iter_chunks

# Time between the moment when all processes are ready and the start of the run.
_LEAD_S = 0.3
# Interval at which the end of the run is checked.
_CHECK_S = 0.2
# Number of points in a plot, and the minimum and maximum interval between two points, in seconds.
_POINTS = 150
_SAMPLE_S = (0.5, 10.0)
# Longest wait for a sample, so that an unreachable server does not delay the run for the client's whole timeout.
_SAMPLE_TIMEOUT_S = 2.0
# After the last message, a run waits for unfinished messages for the scenario's `drain`, or for this time if it is
# longer (real time).
_DRAIN_MIN_S = 5.0
_CANCELS = 500


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run. ``is_ours``: the namespace was created for the run."""

    source: Source
    namespace: str
    url: str | None = None
    data_dir: Path | None = None
    is_ours: bool = True
    timeout: timedelta | None = None
    worker_processes: int | None = None
    prefix: str = "load"
    """Prefix of the ids of the run's messages."""


@dataclass(slots=True)
class Progress:
    """Progress of a run, for display."""

    planned: int
    sent: int
    counts: Mapping[str, int]
    seconds: float


async def run(
    settings: Settings,
    tickwheel: aio.Tickwheel,
    stopping: asyncio.Event,
    show: Callable[[Progress], None] = lambda progress: None,
) -> RunResult:
    """Run the load until its work is done, a limit is reached, or ``stopping`` is set. Return the result."""
    scenario = settings.source.scenario()
    bucket_s = _bucket_s(scenario)
    outcome = RunResult(
        scenario,
        Measurements(bucket_s),
        "the embedded server" if settings.url is None else redact(settings.url),
        settings.namespace,
        planned=arrivals.expected_count(scenario),
    )
    for queue in scenario.queues:
        await _create_queue(tickwheel, scenario, queue)
    jobs = _jobs(settings, scenario, bucket_s)
    async with LoadProcesses(jobs, {VARIABLE: settings.url or ""}) as processes:
        watch = _RunMonitor(settings, scenario, tickwheel, processes, outcome, bucket_s)
        await watch.run(stopping, show)
        await processes.stop_and_collect()
        for result in processes.results.values():
            outcome.measurements.merge(result)
        outcome.problems += processes.problems
    foreign = outcome.measurements.error_texts.get(ForeignMessages.__name__)
    if foreign is not None:
        outcome.problems.append(foreign)
    counts = outcome.measurements.counts
    outcome.cpu = {
        name: counts[f"cpu_us/{name}"] / counts[f"real_us/{name}"]
        for name in (job["name"] for job in jobs)
        if counts[f"real_us/{name}"]
    }
    return outcome


async def cancel_remaining(tickwheel: aio.Tickwheel, scenario: Scenario, prefix: str) -> int:
    """Cancel the messages of the run that are not finished, and return their number.

    For a run in a namespace that is not deleted after the run.
    """
    count = 0
    for queue in scenario.queues:
        for state in LIVE_STATES:
            ids_by_value: dict[str | None, list[str]] = {}
            async for message in tickwheel.queue(queue.name).messages(state):
                if message.id.startswith(prefix):
                    ids_by_value.setdefault(message.exclusive_value, []).append(message.id)
            for value, ids in ids_by_value.items():
                for part in iter_chunks(ids, _CANCELS):
                    await tickwheel.queue(queue.name).cancel_many(part, value)
                    count += len(part)
    return count


class _RunMonitor:
    """Samples the queues during the run, and detects its end."""

    def __init__(
        self,
        settings: Settings,
        scenario: Scenario,
        tickwheel: aio.Tickwheel,
        processes: LoadProcesses,
        outcome: RunResult,
        bucket_s: float,
    ) -> None:
        self._scenario = scenario
        self._tickwheel = tickwheel
        self._processes = processes
        self._outcome = outcome
        self._bucket_s = bucket_s
        self._samples = outcome.samples
        self._sent_at: float | None = None

    async def run(self, stopping: asyncio.Event, show: Callable[[Progress], None]) -> None:
        self._samples.append(await self._take_sample(0.0))
        start = monotonic() + _LEAD_S
        self._processes.begin(start)
        while True:
            moment = monotonic() - start
            if moment >= self._samples[-1].moment_s + self._bucket_s:
                await self._sample(moment, stopping)
            show(self._progress(moment))
            if await self._is_over(moment, stopping):
                break
            try:
                await asyncio.wait_for(stopping.wait(), _CHECK_S)
            except TimeoutError:
                continue
        self._outcome.seconds = monotonic() - start
        # The last sample has the state of the queues at the end of the run. It is taken after an interruption, too.
        await self._sample(self._outcome.seconds, asyncio.Event())

    async def _is_over(self, moment: float, stopping: asyncio.Event) -> bool:
        outcome, scenario = self._outcome, self._scenario
        if stopping.is_set():
            outcome.ended, outcome.interrupted = "it was interrupted", True
            return True
        if self._processes.problems:
            outcome.ended = "a process of the load ended"
            return True
        if any(progress["counts"].get(FOREIGN) for progress in self._processes.progress.values()):
            outcome.ended = "a worker received messages of other programs"
            return True
        if scenario.max_seconds is not None and moment >= scenario.max_seconds:
            outcome.ended = f"the limit of {scenario.max_seconds:g} s was reached"
            return True
        if not self._processes.progress.get("producer", {}).get("is_done"):
            return False
        if self._sent_at is None:
            self._sent_at = moment
        if await self._sample(moment, stopping) and not self._samples[-1].live:
            return True
        longest = max(_DRAIN_MIN_S, scenario.to_real_s(scenario.drain_s))
        if moment >= self._sent_at + longest:
            outcome.ended = f"work was left {longest:g} s after the last message"
            return True
        return False

    async def _sample(self, moment: float, stopping: asyncio.Event) -> bool:
        """Take a sample of the queues, and return whether it succeeded in time.

        If the sample fails, the error is recorded, and the values of the previous sample are recorded again.
        """
        sampling, stopped = asyncio.create_task(self._take_sample(moment)), asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({sampling, stopped}, timeout=_SAMPLE_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if sampling.done():
                self._samples.append(sampling.result())
                return True
            if not stopping.is_set():
                self._outcome.measurements.error(
                    TimeoutError(f"the counts of the queues did not arrive within {_SAMPLE_TIMEOUT_S} s")
                )
        except TickwheelError as error:
            self._outcome.measurements.error(error)
        finally:
            sampling.cancel()
            stopped.cancel()
            await asyncio.gather(sampling, stopped, return_exceptions=True)
        self._samples.append(replace(self._samples[-1], moment_s=moment))
        return False

    async def _take_sample(self, moment: float) -> Sample:
        queues = [self._tickwheel.queue(queue.name) for queue in self._scenario.queues]
        counts = {queue.name: await queue.counts() for queue in queues}
        lateness = {queue.name: await queue.lateness() for queue in queues}
        return Sample(moment, counts, lateness)

    def _progress(self, moment: float) -> Progress:
        counts: dict[str, int] = {}
        for progress in self._processes.progress.values():
            for name, count in progress["counts"].items():
                counts[name] = counts.get(name, 0) + count
        return Progress(
            self._outcome.planned, self._processes.progress.get("producer", {}).get("sent") or 0, counts, moment
        )


async def _create_queue(tickwheel: aio.Tickwheel, scenario: Scenario, load: QueueLoad) -> None:
    config: dict[str, Any] = {
        "lease": timedelta(seconds=load.lease_s),
        "max_attempts": load.max_attempts,
        "backoff": timedelta(seconds=scenario.to_real_s(load.backoff_s)),
        "backoff_max": timedelta(seconds=max(scenario.to_real_s(load.backoff_s), 1) * 600),
    }
    if load.exclusive is not None:
        config |= {"exclusive_key": load.exclusive.key, "indexed": [item.key for item in load.metadata]}
    queue = await tickwheel.create_queue(load.name, **config)
    counts = await queue.counts()
    if any(counts[state] for state in LIVE_STATES):
        raise InvalidArgument(
            f"queue {load.name!r} of this namespace has unfinished messages, which the workers of the load would"
            " receive: use another namespace"
        )


def _jobs(settings: Settings, scenario: Scenario, bucket_s: float) -> list[dict[str, Any]]:
    """Return one job for the producer, and the jobs of workers: by default, one for each other core."""
    wanted = settings.worker_processes or max(1, (os.cpu_count() or 2) - 1)
    has_polls = any(queue.polls is not None for queue in scenario.queues)
    parts = wanted if has_polls else max(1, min(wanted, scenario.worker_count))
    common = {
        "source": asdict(settings.source),
        "namespace": settings.namespace,
        "data_dir": None if settings.data_dir is None else str(settings.data_dir),
        "bucket_s": bucket_s,
        "prefix": settings.prefix,
        "parts": parts,
        "part": 0,
    }
    workers = [common | {"name": f"workers {n + 1}", "role": "workers", "part": n} for n in range(parts)]
    return [common | {"name": "producer", "role": "producer"}, *workers]


def _bucket_s(scenario: Scenario) -> float:
    """Return the interval between two points of the plots, in seconds."""
    length = scenario.to_real_s(scenario.length_s)
    if scenario.max_seconds is not None:
        length = min(length, scenario.max_seconds)
    minimum, maximum = _SAMPLE_S
    return min(max(length / _POINTS, minimum), maximum)
