"""The share of each queue in the dequeues of a worker with several queues, on Redis, the service and a cluster."""

import random
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Measurement, Scale
from bench.measurements.worker_shapes import OVER
from services.redis_cluster import RedisCluster
from services.serving_program import SERVE, ServingProgram
from tickwheel import Message, NewMessage, Tickwheel
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.operations.several_queues.dequeue_several import SeveralQueues
from tickwheel.tasks.task_queue import TaskQueue
from tickwheel.worker.selectors import ReducedLottery

CONNECTED: Final = {**OVER, "cluster": "connected to a Redis Cluster"}
_QUEUES = (TaskQueue("high", 100), TaskQueue("middle", 40), TaskQueue("low", 20))
_BATCH = 500
# Each of the three primaries has some of the shards.
_SHARDS_OF_CLUSTER: Final = 8


def queue_shares(scale: Scale) -> list[Measurement]:
    """Measure how far the share of a queue is from its share of the tickets, while all queues have messages."""
    # One run is enough: with 100,000 draws, the standard deviation of a share is below 0.2 %.
    draws = scale.size(100_000, 300)
    what = "largest difference between the share of one of three queues in {:,} dequeues of a worker, {}, and its share"
    return [
        Measurement(
            f"queue_shares_{over}",
            f"{what.format(draws, connected)} of the tickets",
            "% of the dequeues",
            [_largest_difference(over, draws)],
            2,
            details={
                "draws": draws,
                "weights": [queue.weight for queue in _QUEUES],
                "shards": _shards(over),
                "aof": "off",
            },
        )
        for over, connected in CONNECTED.items()
    ]


def _largest_difference(over: str, draws: int) -> float:
    """Return the largest difference between a queue's share of the draws and its share of the tickets, in percent."""
    with ExitStack() as stack:
        server_url, url = _serve(over, stack)
        with Tickwheel(server_url, drive=False, shards=_shards(over)) as tickwheel:
            for queue in _QUEUES:
                waiting = tickwheel.create_queue(queue.name)
                for _ in range(0, draws, _BATCH):
                    waiting.enqueue_many(NewMessage() for _ in range(_BATCH))
        worker = stack.enter_context(Tickwheel(url))
        options = {queue.name: DequeueOptions.parse(1) for queue in _QUEUES}
        select = ReducedLottery(_QUEUES, random.Random(1)).select_queue
        several: SeveralQueues[TaskQueue, Message] = SeveralQueues(options, select, Message)
        drawn = Counter(worker._dequeue_several(several, 0).queue.name for _ in range(draws))
    tickets = sum(queue.weight for queue in _QUEUES)
    return max(100 * abs(drawn[queue.name] / draws - queue.weight / tickets) for queue in _QUEUES)


def _shards(over: str) -> int:
    return _SHARDS_OF_CLUSTER if over == "cluster" else 1


def _serve(over: str, stack: ExitStack) -> tuple[str, str]:
    """Start the servers. Return their URL, and the URL that the worker uses."""
    if over == "cluster":
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(RedisCluster(folder, replicas=0, settings={"appendonly": "no"}))
        return cluster.url, cluster.url
    server = stack.enter_context(BenchServer())
    if over == "grpc":
        return server.url, stack.enter_context(ServingProgram(server.folder, *SERVE, server.url)).url
    return server.url, server.url
