"""The memory of the server for delayed messages, metadata pairs, and cancelled order time-outs."""

from datetime import timedelta

from bench.harness.bench_server import BenchServer
from bench.harness.manual_time import ManualTimeShard
from bench.harness.measurement import Measurement, Scale
from bench.measurements.message_life import PAYLOAD
from tickwheel import NewMessage

BATCH = 100
# The server's hash tables grow by doubling, so the memory for a message depends on the number of messages. All sizes
# lie between two doublings, and the first size is just above a doubling. The value of a row is the median over the
# sizes. Its details have the maximum.
SAMPLES = 10
SIZES = (57_600, 68_000, 80_000, 95_000, 113_000)
DAYS = 20
QUEUE = "memory"
METADATA = (
    ("region", "eu-west"),
    ("tenant", "acme-0042"),
    ("kind", "reminder"),
    ("gpu", "a100"),
    ("project", "tickwheel"),
)


def memory(scale: Scale) -> list[Measurement]:
    """Measure a delayed message without metadata, after filing its timer and trimming the history."""
    per_sample = scale.size(30_000, 400)
    per_message: list[float] = []
    with BenchServer() as server, ManualTimeShard(server, history=1) as shard:
        queue = shard.tickwheel.create_queue(QUEUE)
        queue.enqueue(delay=timedelta(seconds=2))
        shard.settle(5_000)
        before = _settled_memory(shard)
        for sample in range(1, SAMPLES + 1):
            spread = timedelta(days=DAYS) / per_sample
            for first in range(0, per_sample, BATCH):
                new = [NewMessage(PAYLOAD, delay=timedelta(minutes=5) + spread * (first + n)) for n in range(BATCH)]
                queue.enqueue_many(new)
                shard.turn(1)
            per_message.append((_settled_memory(shard) - before) / (per_sample * sample))
    counted = per_message[2:]
    return [
        Measurement(
            "memory",
            "server memory for one delayed message with an id of 20 characters, if 90,000 to 300,000 are delayed",
            "bytes",
            counted,
            380,
            details={
                "messages": [per_sample * sample for sample in range(3, SAMPLES + 1)],
                "value_is": "the median over all numbers of messages",
                "dearest": round(max(counted), 1),
                "payload_bytes": len(PAYLOAD),
                "delays": f"5 minutes to {DAYS} days",
            },
        )
    ]


def pairs(scale: Scale) -> list[Measurement]:
    """Measure a metadata pair of a pending message: compare a server with pairs and a server without pairs."""
    sizes = scale.sizes(SIZES, 400)
    per_pair: dict[int, list[float]] = {1: [], 5: []}
    for count in sizes:
        plain = _pending(count, 0)
        for number, samples in per_pair.items():
            samples.append((_pending(count, number) - plain) / (count * number))
    one = per_pair[1]
    return [
        Measurement(
            "pairs",
            "server memory for one metadata pair of a pending message, if 57,600 to 113,000 messages"
            " have one pair each",
            "bytes",
            one,
            160,
            details={
                "messages": sizes,
                "pairs": [f"{key}={value}" for key, value in METADATA],
                "value_is": "the median over all numbers of messages, for messages with one pair",
                "dearest": round(max(one), 1),
                "each_of_five": [round(value, 1) for value in per_pair[5]],
            },
        )
    ]


def _pending(count: int, number: int) -> int:
    """Return the bytes that ``count`` pending messages with ``number`` pairs each take in total."""
    with BenchServer() as server, ManualTimeShard(server, history=1) as shard:
        queue = shard.tickwheel.create_queue(QUEUE)
        queue.enqueue(delay=timedelta(seconds=2))
        shard.settle(5_000)
        before = _settled_memory(shard)
        for first in range(0, count, BATCH):
            metadata = dict(METADATA[:number])
            # The first pair has a thousand values, like tenants or projects.
            metadata |= {METADATA[0][0]: f"{METADATA[0][1]}-{first // BATCH % 1000:03}"} if number else {}
            queue.enqueue_many(NewMessage(PAYLOAD, metadata=metadata) for _ in range(BATCH))
        return _settled_memory(shard) - before


def cancelled_memory(scale: Scale) -> list[Measurement]:
    """Measure an order time-out of 15 minutes, cancelled after two minutes: during and after its retention."""
    sizes = scale.sizes(SIZES, 400)
    delay, paid_after_ms = timedelta(minutes=15), 120_000
    retained: list[float] = []
    after: list[float] = []
    for count in sizes:
        with BenchServer() as server, ManualTimeShard(server, history=1) as shard:
            queue = shard.tickwheel.create_queue(QUEUE)
            queue.enqueue(delay=timedelta(seconds=2))
            shard.settle(5_000)
            before = _settled_memory(shard)
            ids: list[list[str]] = []
            # Two thousand orders a second; each batch is paid after two minutes.
            began = shard.clock.now_ms
            for _ in range(0, count, BATCH):
                ids.append([result.id for result in queue.enqueue_many([NewMessage(PAYLOAD, delay=delay)] * BATCH)])
                shard.turn(BATCH // 2)
            shard.advance_to(max(shard.clock.now_ms, began + paid_after_ms))
            for batch in ids:
                queue.cancel_many(batch)
                shard.turn(BATCH // 2)
            last_cancel = shard.clock.now_ms
            retained.append((_settled_memory(shard) - before) / count)
            shard.advance_to(last_cancel + queue.config().retention_ms + 10_000)
            assert not any(queue.counts().values()) or queue.counts()["pending"] == 1, queue.counts()
            after.append((_settled_memory(shard) - before) / count)
            assert shard.clock.now_ms < began + delay.total_seconds() * 1000, "the time-outs are due"
    details = {
        "messages": sizes,
        "payload_bytes": len(PAYLOAD),
        "enqueued_per_second": 2_000,
        "value_is": "the median over all numbers of messages",
    }
    return [
        Measurement(
            "cancelled_retained",
            "server memory for one message cancelled before its due time, during its retention, with 57,600"
            " to 113,000 such messages",
            "bytes",
            retained,
            160,
            details=details | {"dearest": round(max(retained), 1)},
        ),
        Measurement(
            "cancelled_gone",
            "server memory for one message cancelled before its due time, after its retention until its due time, with"
            " 57,600 to 113,000 such messages",
            "bytes",
            after,
            60,
            details=details | {"dearest": round(max(after), 1)},
        ),
    ]


def _settled_memory(shard: ManualTimeShard) -> int:
    """Return the used memory once all timers are filed, and the server has freed and resized its memory."""
    shard.file()
    shard.server.redis.xtrim(shard.key("events"), maxlen=0, approximate=False)
    best = shard.server.used_memory()
    for _ in range(200):
        # Commands keep the server's incremental rehashing going.
        shard.server.redis.hget(shard.key("messages"), "none")
        now = shard.server.used_memory()
        best = min(best, now)
    return best
