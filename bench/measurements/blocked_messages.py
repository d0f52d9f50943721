"""Dequeue from an exclusive queue with a hundred thousand blocked messages."""

from contextlib import ExitStack
from datetime import timedelta
from itertools import count as numbers
from statistics import median

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Measurement, Scale
from bench.measurements.message_life import BATCH, PAYLOAD
from tickwheel import NewMessage, Tickwheel
from tickwheel.client import Queue

KEY = "project"
LONG = timedelta(hours=12)


def blocked_messages(scale: Scale) -> list[Measurement]:
    """Compare three servers in turns: no blocked messages, messages blocked by one value, and by a thousand values."""
    behind = scale.size(100_000, 1_000)
    measured, warm = scale.size(5_000, 200), BATCH
    cases = {"none": 0, "behind 1 value": 1, "behind 1,000 values": scale.size(1_000, 10)}
    costs: dict[str, list[float]] = {name: [] for name in cases}
    fresh = numbers()
    with ExitStack() as stack:
        servers: dict[str, tuple[BenchServer, Queue]] = {}
        for name, values in cases.items():
            server = stack.enter_context(BenchServer())
            tickwheel = stack.enter_context(Tickwheel(server.url, drive=False))
            queue = tickwheel.create_queue("blocked", exclusive_key=KEY)
            block(queue, values, behind if values else 0, {})
            servers[name] = server, queue
        for _ in range(scale.runs()):
            for name, (server, queue) in servers.items():
                add_free(queue, measured + warm, fresh, {})
                queue.complete_many(queue.dequeue(warm))
                taken = []
                before = server.cpu_us()
                for _ in range(measured // BATCH):
                    taken.append(queue.dequeue(BATCH))
                costs[name].append((server.cpu_us() - before) / measured)
                for messages in taken:
                    assert len(messages) == BATCH
                    queue.complete_many(messages)
    worst = [max(many) / none for none, *many in zip(*costs.values(), strict=True)]
    return [
        Measurement(
            "blocked",
            f"server CPU time for each message of a dequeue of {BATCH} messages from an exclusive queue with {behind:,}"
            " blocked messages, relative to none",
            "×",
            worst,
            1.4,
            details={
                "batch": BATCH,
                "dequeue_us_per_message": {name: round(median(us), 3) for name, us in costs.items()},
                "ratios": {
                    name: round(median(us / none for us, none in zip(samples, costs["none"], strict=True)), 3)
                    for name, samples in costs.items()
                },
                "value_is": "of each run, the higher of two ratios: messages behind one exclusive value, or a thousand",
            },
        )
    ]


def block(queue: Queue, values: int, messages: int, metadata: dict[str, str]) -> None:
    """Lease one message of each value for a long time. Then enqueue messages that these leases block.

    The blocked messages are more urgent than those of `add_free`.
    """
    if not values:
        return
    first = timedelta(days=-2)
    for start in range(0, values, BATCH):
        queue.enqueue_many(
            NewMessage(PAYLOAD, deadline=first, metadata=metadata | {KEY: f"busy-{n}"})
            for n in range(start, min(start + BATCH, values))
        )
    leased = 0
    while leased < values:
        leased += len(queue.dequeue(min(BATCH, values - leased), lease=LONG))
    for start in range(0, messages, BATCH):
        queue.enqueue_many(
            NewMessage(PAYLOAD, deadline=timedelta(days=-1), metadata=metadata | {KEY: f"busy-{n % values}"})
            for n in range(start, start + BATCH)
        )


def add_free(queue: Queue, messages: int, fresh: "numbers[int]", metadata: dict[str, str]) -> None:
    """Enqueue messages that are not blocked: each has a new value."""
    for _ in range(0, messages, BATCH):
        queue.enqueue_many(NewMessage(PAYLOAD, metadata=metadata | {KEY: f"free-{next(fresh)}"}) for _ in range(BATCH))
