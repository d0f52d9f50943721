"""A producer of a load on a server that stalls for a while."""

import asyncio
import os
from dataclasses import replace
from time import monotonic

from tests.unit.load_scenarios import one_queue
from tickwheel import aio
from tickwheel.load.run.measurements import Measurements
from tickwheel.load.run.producer import Producer
from tickwheel.testing import PrivateServer

_SLOW_MS = 50.0


async def run_stalled_load(server: PrivateServer, *, stall_s: float, per_s: float, seconds: float) -> dict[str, int]:
    """Return how many messages were enqueued, and how many of them took long from their planned time."""
    scenario = replace(one_queue(rate=per_s), length_s=seconds)
    namespace = f"load-{os.urandom(6).hex()}"
    meter = Measurements(1.0)
    async with aio.Tickwheel(server.url, namespace=namespace, drive=False) as tickwheel:
        await tickwheel.create_queue("q")
        producer = asyncio.create_task(Producer(scenario, tickwheel, meter, monotonic(), "load").run(asyncio.Event()))
        with server.client() as client:
            await asyncio.to_thread(lambda: client.execute_command("CLIENT", "PAUSE", int(1e3 * stall_s), "ALL"))
        await producer
    server.clear(namespace)
    histogram = meter.histograms["enqueue"]
    slow = sum(
        bucket.count_at_value_iterated_to
        for bucket in histogram.get_recorded_iterator()
        if bucket.value_iterated_to > _SLOW_MS * 1e3
    )
    return {"count": int(histogram.get_total_count()), "slow": int(slow)}
