"""The rate at which the relay publishes an outbox to a real Kafka, and the CPU time of server and relay."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from redis import Redis

from bench.harness.bench_server import BenchServer
from bench.harness.calibration import ratios_to_zadd
from bench.harness.measurement import Measurement, Scale
from services.kafka import Kafka
from tickwheel import NewMessage, Tickwheel
from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.stats import WheelStats
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.event_process.sidecar import Sidecar
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.relay.relay import Relay
from tickwheel.storage.fence import pack_fence
from tickwheel.storage.keys import shard_key

METADATA = {"customer": "4711", "region": "eu"}
RATE_BAR = 30_000
PARTITIONS = 4
_WITHIN_S = 600.0


def relay(scale: Scale) -> list[Measurement]:
    """Measure the outbox of one shard, written by calls of 100 messages and by calls of one message."""
    with BenchServer() as server, _kafka() as kafka:
        measurements = []
        for name, batch, lives in (("relay", 100, 100_000), ("relay_single", 1, 20_000)):
            measurements += _measure(scale, server, kafka, name, batch, scale.size(lives, 1_000))
        return measurements


def _measure(scale: Scale, server: BenchServer, kafka: Kafka, name: str, batch: int, lives: int) -> list[Measurement]:
    rates, cores = [], []
    transitions = 3 * lives

    def run_us() -> float:
        _fill(server, batch, lives)
        took_s, server_us, own_us = _relay(server, kafka, transitions)
        rates.append(transitions / took_s)
        cores.append(own_us / transitions)
        server.redis.flushall()
        return server_us / transitions

    ratios, zadds = ratios_to_zadd(server, scale, scale.runs(3), run_us, warm_up=False)
    load = f"enqueued in calls of {batch}, with {len(METADATA)} metadata pairs each"
    details = {
        "transitions": transitions,
        "own_cpu_us_per_transition": [round(us, 2) for us in cores],
        "transitions_per_core_second": round(1e6 / median(cores)),
        "zadd_us": [round(us, 3) for us in zadds],
        "kafka": f"one broker on the same host, {PARTITIONS} partitions, acks=all, idempotent, lz4",
    }
    whole = batch > 1
    return [
        Measurement(
            name,
            f"rate at which the relay of one shard publishes transitions of messages {load}",
            "transitions/s",
            rates,
            RATE_BAR if whole else None,
            at_least=True,
            details=details,
        ),
        Measurement(
            f"{name}_server",
            f"server CPU time for each published transition; messages {load}",
            "ZADD",
            ratios,
            1 if whole else None,
        ),
    ]


def _fill(server: BenchServer, batch: int, lives: int) -> None:
    """Run whole lives with three transitions each, so that their events wait for the relay."""
    with Tickwheel(server.url, history="relay", outbox_limit=2**32) as tickwheel:
        queue = tickwheel.queue("bench")
        for first in range(0, lives, batch):
            queue.enqueue_many(NewMessage(id=f"order-{first + n}", metadata=METADATA) for n in range(batch))
            queue.complete_many(queue.dequeue(batch, worker="worker-1"))


def _relay(server: BenchServer, kafka: Kafka, transitions: int) -> tuple[float, float, float]:
    """Relay all transitions. Return the seconds, and the CPU microseconds of the server and of this process."""
    fence, stats = pack_fence(1, 1), WheelStats()
    server.redis.hset(shard_key("tw", 0, "clock"), "fence", fence)
    with Tickwheel(server.url) as tickwheel, _producers(kafka) as producers:
        core = tickwheel._context
        shard = FencedShard(core.namespace, 0)
        shard.fence = fence
        queues = QueueDirectory(core, tickwheel._io)
        work = Relay(
            lambda _: Redis.from_url(server.url, protocol=2),
            core.namespace,
            shard,
            queues=queues,
            producers=producers,
            stats=stats,
            history=core.history,
        )
        before_us, own, began = server.process_cpu_us(), time.process_time(), time.perf_counter()
        sidecar = Sidecar(shard, work)
        while stats.relayed < transitions:
            if time.perf_counter() > began + _WITHIN_S:
                raise AssertionError(f"{stats.relayed} of {transitions} transitions were relayed in {_WITHIN_S} s")
            time.sleep(0.005)
        took_s, own_s = time.perf_counter() - began, time.process_time() - own
        server_us = server.process_cpu_us() - before_us
        sidecar.stop()
        sidecar.join()
    return took_s, server_us, own_s * 1e6


@contextmanager
def _kafka() -> Iterator[Kafka]:
    with tempfile.TemporaryDirectory(prefix="tickwheel-bench-") as folder, Kafka(Path(folder)) as kafka:
        yield kafka


@contextmanager
def _producers(kafka: Kafka) -> Iterator[KafkaProducers]:
    topic = f"transitions-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(30)
    producers = KafkaProducers(kafka.bootstrap, topic)
    try:
        yield producers
    finally:
        producers.close()
