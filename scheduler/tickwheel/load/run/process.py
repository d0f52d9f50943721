"""The program of one process of a run: the producer, or a part of the workers. Standard input controls the process.

    [TICKWHEEL_URL=…] python -m tickwheel.load.run.process

The first line is the job as JSON; the process answers ``ready``. The second line is the start of the run on the host's
monotonic clock. The process reports its progress twice a second. After ``stop`` the process writes its measurements and
ends. If the input ends without ``stop``, the process ends without its measurements.
"""

import asyncio
import json
import os
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from tickwheel import aio, limits
from tickwheel.load.run.measurements import Measurements
from tickwheel.load.run.poller import Poller
from tickwheel.load.run.producer import Producer
from tickwheel.load.run.worker import Worker
from tickwheel.load.scenario.scenario import Scenario, WorkerGroup
from tickwheel.load.scenario.source import Source
from tickwheel.redis.url import VARIABLE
from tickwheel.runtime.event_loop import open_standard_input
from tickwheel.runtime.foreign_data import decode_json
from tickwheel.runtime.gc_freeze import freeze_gc

_PROGRESS_INTERVAL_S = 0.5
# Maximum wait for the answers to calls in flight after ``stop``.
_STOP_S = 5.0


class LoadProcess:
    """Executes a job."""

    def __init__(self, job: dict[str, Any], tickwheel: aio.Tickwheel) -> None:
        self._job = job
        self._scenario: Scenario = Source(**job["source"]).scenario()
        self._tickwheel = tickwheel
        self._measurements = Measurements(job["bucket_s"], self._scenario.warm_up_s)
        self._stopping = asyncio.Event()
        self._producer: Producer | None = None

    def stop(self) -> None:
        self._stopping.set()

    async def run(self, start: float) -> None:
        """Work from ``start`` until `stop` is called, then write the measurements."""
        await asyncio.sleep(max(0.0, start - monotonic()))
        used, began = process_time(), monotonic()
        tasks = [asyncio.create_task(duty) for duty in self._duties(start)]
        reporter = asyncio.create_task(self._report_progress())
        await self._stopping.wait()
        self._measurements.counts[f"cpu_us/{self._job['name']}"] = round(1e6 * (process_time() - used))
        self._measurements.counts[f"real_us/{self._job['name']}"] = round(1e6 * (monotonic() - began))
        if self._producer is None:
            for task in tasks:
                task.cancel()
        _, unfinished = await asyncio.wait([*tasks, asyncio.create_task(asyncio.sleep(0))], timeout=_STOP_S)
        for task in (*unfinished, reporter):
            task.cancel()
        _write_message({"result": self._measurements.document()})

    def _duties(self, start: float) -> list[Coroutine[Any, Any, None]]:
        scenario, part, parts = self._scenario, self._job["part"], self._job["parts"]
        if self._job["role"] == "producer":
            self._producer = Producer(scenario, self._tickwheel, self._measurements, start, self._job["prefix"])
            return [self._producer.run(self._stopping)]
        duties: list[Coroutine[Any, Any, None]] = []
        number = 0
        for group in scenario.workers:
            for n in range(group.count):
                if number % parts == part:
                    name = f"{group.name[:40]}-{n + 1}"
                    duties.append(self._worker(group, name, start).run())
                number += 1
        for queue in scenario.queues:
            if queue.polls is not None:
                group = WorkerGroup("polls", [queue.name])
                worker = self._worker(group, f"polls-{part + 1}", start)
                duties.append(Poller(scenario, queue, worker, part, parts).run())
        return duties

    def _worker(self, group: WorkerGroup, name: str, start: float) -> Worker:
        return Worker(
            self._scenario, group, name, self._tickwheel, self._measurements, start, prefix=self._job["prefix"]
        )

    async def _report_progress(self) -> None:
        while True:
            counts = {key: value for key, value in self._measurements.counts.items() if "/" not in key}
            sent = None if self._producer is None else self._producer.sent
            _write_message(
                {"counts": counts, "sent": sent, "is_done": self._producer is not None and self._producer.is_done}
            )
            await asyncio.sleep(_PROGRESS_INTERVAL_S)


async def _work() -> None:
    standard_input = await open_standard_input()
    job = decode_json(await standard_input.readline() or b"null")
    if job is None:
        return
    where = os.environ.get(VARIABLE) or None
    data_dir = None if job["data_dir"] is None else Path(job["data_dir"])
    # A load that is simulated during an outage should not report errors that a longer timeout would prevent.
    timeout = timedelta(milliseconds=limits.RETRY_MS)
    async with aio.Tickwheel(
        where, namespace=job["namespace"], data_dir=data_dir, drive=False, timeout=timeout
    ) as tickwheel:
        process = LoadProcess(job, tickwheel)
        freeze_gc()
        _write_message({"ready": True})
        start = await standard_input.readline()
        if not start:
            return
        running = asyncio.create_task(process.run(float(start)))
        next_line = asyncio.create_task(standard_input.readline())
        await asyncio.wait([running, next_line], return_when=asyncio.FIRST_COMPLETED)
        if not next_line.done() or next_line.result():
            process.stop()
            await running
        else:
            running.cancel()


def _write_message(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    asyncio.run(_work())
