"""One run of a load: queues are made, processes are started and watched, and what they measured is added up."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

from tickwheel import InvalidArgument, TickwheelError, aio
from tickwheel.load.run.measurements import Meter
from tickwheel.load.run.processes import Children
from tickwheel.load.run.run_result import Outcome, Sample
from tickwheel.load.scenario import arrivals
from tickwheel.load.scenario.scenario import QueueLoad, Scenario
from tickwheel.load.scenario.source import Source
from tickwheel.redis import url as urls

# From when all are ready to the first message; how often the run is looked at; how many points a plot has.
_LEAD_S = 0.3
_LOOK_S = 0.2
_POINTS = 150
_SAMPLE_S = (0.5, 10.0)
# A server that is away keeps a run no longer than this, whatever the client would.
_SAMPLE_MOST_S = 2.0
# What is under way when the last message is sent has this long at least, whatever the speed.
_DRAIN_LEAST_S = 5.0
_CANCELS = 500


@dataclass(frozen=True, slots=True)
class Settings:
    """How a load is run. ``is_ours``: the namespace was made for it."""

    source: Source
    namespace: str
    url: str | None = None
    data_dir: Path | None = None
    is_ours: bool = True
    timeout: timedelta | None = None
    worker_processes: int | None = None
    prefix: str = "load"
    """Of the ids of its messages."""


@dataclass(slots=True)
class Progress:
    """How far a run is, for who watches it."""

    planned: int
    sent: int
    counts: Mapping[str, int]
    seconds: float


async def run(
    settings: Settings,
    tickwheel: aio.Tickwheel,
    stopping: asyncio.Event,
    show: Callable[[Progress], None] = lambda progress: None,
) -> Outcome:
    """Run it, until all is done, a bound is reached, or ``stopping`` is set; what it came to, in each case."""
    scenario = settings.source.scenario()
    bucket_s = _bucket_s(scenario)
    outcome = Outcome(
        scenario,
        Meter(bucket_s),
        "the embedded server" if settings.url is None else urls.without_password(settings.url),
        settings.namespace,
        planned=arrivals.expected(scenario),
    )
    for queue in scenario.queues:
        await _create(tickwheel, scenario, queue)
    jobs = _jobs(settings, scenario, bucket_s)
    async with Children(jobs, {urls.VARIABLE: settings.url or ""}) as children:
        watch = _Watch(settings, scenario, tickwheel, children, outcome, bucket_s)
        await watch.run(stopping, show)
        await children.results_of_all()
        for result in children.results.values():
            outcome.meter.take(result)
        outcome.troubles += children.troubles
    counts = outcome.meter.counts
    outcome.cpu = {
        name: counts[f"cpu_us/{name}"] / counts[f"real_us/{name}"]
        for name in (job["name"] for job in jobs)
        if counts[f"real_us/{name}"]
    }
    return outcome


async def cancel_the_rest(tickwheel: aio.Tickwheel, scenario: Scenario, prefix: str) -> int:
    """In a namespace that stays: what the run enqueued and nobody finished is cancelled; how many that were."""
    count = 0
    for queue in scenario.queues:
        for state in ("invisible", "pending", "running"):
            found: dict[str | None, list[str]] = {}
            async for message in tickwheel.queue(queue.name).messages(state):
                if message.id.startswith(prefix):
                    found.setdefault(message.exclusive_value, []).append(message.id)
            for value, ids in found.items():
                for first in range(0, len(ids), _CANCELS):
                    part = ids[first : first + _CANCELS]
                    await tickwheel.queue(queue.name).cancel_many(part, value)
                    count += len(part)
    return count


class _Watch:
    """Looks at the run while it goes on, and sees when it is over."""

    def __init__(
        self,
        settings: Settings,
        scenario: Scenario,
        tickwheel: aio.Tickwheel,
        children: Children,
        outcome: Outcome,
        bucket_s: float,
    ) -> None:
        self._scenario = scenario
        self._tickwheel = tickwheel
        self._children = children
        self._outcome = outcome
        self._bucket_s = bucket_s
        self._samples: list[Sample] = []
        outcome.samples = self._samples
        self._sent_at: float | None = None

    async def run(self, stopping: asyncio.Event, show: Callable[[Progress], None]) -> None:
        self._samples.append(await self._looked(0.0))
        start = monotonic() + _LEAD_S
        self._children.begin(start)
        while True:
            moment = monotonic() - start
            if moment >= self._samples[-1].moment_s + self._bucket_s:
                await self._sample(moment, stopping)
            show(self._progress(moment))
            if await self._is_over(moment, stopping):
                break
            try:
                await asyncio.wait_for(stopping.wait(), _LOOK_S)
            except TimeoutError:
                continue
        self._outcome.seconds = monotonic() - start
        # Interrupted or not: it tells how the run has left them.
        await self._sample(self._outcome.seconds, asyncio.Event())

    async def _is_over(self, moment: float, stopping: asyncio.Event) -> bool:
        outcome, scenario = self._outcome, self._scenario
        if stopping.is_set():
            outcome.ended, outcome.interrupted = "it was interrupted", True
            return True
        if self._children.troubles:
            outcome.ended = "a process of the load ended"
            return True
        if scenario.most_seconds is not None and moment >= scenario.most_seconds:
            outcome.ended = f"its {scenario.most_seconds:g} s were over"
            return True
        if not self._children.told.get("producer", {}).get("is_done"):
            return False
        if self._sent_at is None:
            self._sent_at = moment
        if await self._sample(moment, stopping) and not self._samples[-1].live:
            return True
        longest = max(_DRAIN_LEAST_S, scenario.real(scenario.drain_s))
        if moment >= self._sent_at + longest:
            outcome.ended = f"{longest:g} s after the last message there was still work"
            return True
        return False

    async def _sample(self, moment: float, stopping: asyncio.Event) -> bool:
        """How the queues stand, and whether that was to be had soon: if not it is told, and they stand as they did."""
        looking, stopped = asyncio.create_task(self._looked(moment)), asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({looking, stopped}, timeout=_SAMPLE_MOST_S, return_when=asyncio.FIRST_COMPLETED)
            if looking.done():
                self._samples.append(looking.result())
                return True
            if not stopping.is_set():
                self._outcome.meter.error(TimeoutError(f"how the queues stand was not told within {_SAMPLE_MOST_S} s"))
        except TickwheelError as error:
            self._outcome.meter.error(error)
        finally:
            looking.cancel()
            stopped.cancel()
            await asyncio.gather(looking, stopped, return_exceptions=True)
        self._samples.append(replace(self._samples[-1], moment_s=moment))
        return False

    async def _looked(self, moment: float) -> Sample:
        queues = [self._tickwheel.queue(queue.name) for queue in self._scenario.queues]
        counts = {queue.name: await queue.counts() for queue in queues}
        lateness = {queue.name: await queue.lateness() for queue in queues}
        return Sample(moment, counts, lateness)

    def _progress(self, moment: float) -> Progress:
        counts: dict[str, int] = {}
        for told in self._children.told.values():
            for name, count in told["counts"].items():
                counts[name] = counts.get(name, 0) + count
        return Progress(self._outcome.planned, self._children.told.get("producer", {}).get("sent") or 0, counts, moment)


async def _create(tickwheel: aio.Tickwheel, scenario: Scenario, load: QueueLoad) -> None:
    config: dict[str, Any] = {
        "lease": timedelta(seconds=load.lease_s),
        "max_attempts": load.max_attempts,
        "backoff": timedelta(seconds=scenario.real(load.backoff_s)),
        "backoff_max": timedelta(seconds=max(scenario.real(load.backoff_s), 1) * 600),
    }
    if load.exclusive is not None:
        config |= {"exclusive_key": load.exclusive.key, "indexed": [each.key for each in load.metadata]}
    queue = await tickwheel.create_queue(load.name, **config)
    counts = await queue.counts()
    if any(counts[state] for state in ("invisible", "pending", "running")):
        raise InvalidArgument(
            f"queue {load.name!r} of this namespace has messages, and the load would mix with them: name another"
        )


def _jobs(settings: Settings, scenario: Scenario, bucket_s: float) -> list[dict[str, Any]]:
    """One process for the producers; the workers share as many as there are other cores."""
    wanted = settings.worker_processes or max(1, (os.cpu_count() or 2) - 1)
    has_polls = any(queue.polls is not None for queue in scenario.queues)
    parts = wanted if has_polls else max(1, min(wanted, scenario.worker_count))
    common = {
        "source": settings.source.document(),
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
    """How long one point of the plots is."""
    length = scenario.real(scenario.length_s)
    if scenario.most_seconds is not None:
        length = min(length, scenario.most_seconds)
    least, most = _SAMPLE_S
    return min(max(length / _POINTS, least), most)
