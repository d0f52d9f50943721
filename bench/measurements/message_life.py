"""The server CPU time of a whole delayed life, from enqueue to retire, including the stale lease timer."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any

from bench.harness.bench_server import BenchServer
from bench.harness.busy_cores import keep_cores_busy
from bench.harness.calibration import ZADDS, ZADDS_QUICK, ratios_to_zadd, zadd_us
from bench.harness.manual_time import ManualTimeShard
from bench.harness.measurement import Measurement, Scale
from tickwheel import Message, NewMessage, Queue
from tickwheel.storage.scripts import load

BATCH = 100
# 100 messages each 10 ms, which is 10,000 a second, due after a quarter of an hour.
STEP_MS = 10
DELAY = timedelta(minutes=15)
PAYLOAD = bytes(200)
# Small, so that the history is trimmed all the time, like on a shard that has run for a while.
HISTORY = 200
# The time for which a worker holds a message. The lease timers are filed in this time. So the driver reads them from
# the wheel later, when the messages are already completed.
WORK_MS = 5_000
QUEUE = "lives"


@dataclass(slots=True)
class Cost:
    """Microseconds of server CPU time for a life: the total from INFO, and each phase from the kernel."""

    total_us: float
    parts_us: dict[str, float]


def cost_of_lives(shard: ManualTimeShard, lives: int, payload: bytes = PAYLOAD, batch: int = BATCH) -> Cost:
    """Run whole lives, a batch at a time, until all messages are retired. Return the cost of one life."""
    server, queue = shard.server, shard.tickwheel.queue(QUEUE)
    config = shard.tickwheel.create_queue(QUEUE).config()
    batches = lives // batch
    parts: dict[str, float] = {}

    def part(name: str, work: Callable[[], Any]) -> Any:
        before = server.process_cpu_us() - shard.set_clock_us
        done = work()
        parts[name] = parts.get(name, 0.0) + server.process_cpu_us() - shard.set_clock_us - before
        return done

    fired = shard.fired_timers
    started_us = server.cpu_us() - shard.set_clock_us
    for _ in range(batches):
        new = [NewMessage(payload, delay=DELAY) for _ in range(batch)]
        part("enqueue", lambda new=new: queue.enqueue_many(new))  # type: ignore[misc]
        part("read the inbox", lambda: shard.turn(STEP_MS))
    part("file", shard.file)
    due_ms = shard.clock.now_ms - 3 * 1_000 - batches * STEP_MS + int(DELAY.total_seconds() * 1000)
    part("cascade and read slots", lambda: shard.advance_to(due_ms - STEP_MS))
    working: deque[tuple[int, list[Message]]] = deque()
    delivered = finished = delivered_ms = 0
    while finished < lives:
        part("promote", lambda: shard.turn(STEP_MS))
        # After the last delivery there are no more dequeues: a real worker would sleep until a wake-up.
        if delivered < lives and (messages := part("dequeue", lambda: _dequeue_up_to(queue, batch))):
            delivered_ms = shard.clock.now_ms
            delivered += len(messages)
            working.append((delivered_ms + WORK_MS, messages))
        if working and working[0][0] <= shard.clock.now_ms:
            _, messages = working.popleft()
            part("complete", lambda messages=messages: queue.complete_many(messages))  # type: ignore[misc]
            finished += len(messages)
    done_ms = shard.clock.now_ms
    for name, last_ms in (("lease timer", delivered_ms + config.lease_ms), ("retire", done_ms + config.retention_ms)):
        part(f"{name}: file, cascade, read", shard.file)
        begin = last_ms - batches * STEP_MS - STEP_MS
        part(f"{name}: file, cascade, read", lambda begin=begin: shard.advance_to(begin))  # type: ignore[misc]
        while shard.clock.now_ms < last_ms + STEP_MS:
            part(name, lambda: shard.turn(STEP_MS))
        part(name, shard.settle)
    total_us = server.cpu_us() - shard.set_clock_us - started_us
    fired = shard.fired_timers - fired
    if fired != 3 * lives:
        raise AssertionError(f"{lives} lives fired {fired} timers: expected 3 for each life: promote, lease and retire")
    left = {state: count for state, count in queue.counts().items() if count}
    if left:
        raise AssertionError(f"messages are left that should be retired: {left}")
    return Cost(total_us / lives, {name: us / lives for name, us in parts.items()})


def _dequeue_up_to(queue: Queue, count: int) -> list[Message]:
    """Return up to ``count`` messages."""
    messages: list[Message] = []
    while len(messages) < count and (more := queue.dequeue(min(count - len(messages), 1_000), worker="bench")):
        messages += more
    return messages


def clock_cost_us(shard: ManualTimeShard, calls: int) -> float:
    """Return the additional microseconds of a script call with the production clock instead of the test clock."""
    costs: dict[str, list[float]] = {"_clock": [], "_clock_test": []}
    keys = shard.tickwheel._context.keys(0, QUEUE)
    shard.tickwheel.create_queue(QUEUE)
    for _ in range(5):
        for clock, samples in costs.items():
            script = load("claim_shard", clock)
            sha = shard.server.redis.script_load(script.source)
            with shard.server.redis.pipeline(transaction=False) as pipe:
                for _ in range(calls):
                    # The script reads the clock, then rejects the kind of election. Only the clock's cost differs.
                    pipe.execute_command("EVALSHA", sha, 1, keys["clock"], bytes(16), "another")
                before = shard.server.process_cpu_us()
                pipe.execute(raise_on_error=False)
                samples.append((shard.server.process_cpu_us() - before) / calls)
    return median(costs["_clock"]) - median(costs["_clock_test"])


def life(scale: Scale) -> list[Measurement]:
    """Measure the life of a message with a payload of 200 bytes."""
    return [
        _life(scale, "life", "server CPU time for the life of a delayed message", PAYLOAD, scale.size(20_000, 200), 16)
    ]


def big_life(scale: Scale) -> list[Measurement]:
    """Measure the life of a message with a payload of 32 KiB."""
    payload = bytes(32 * 1024)
    return [
        _life(
            scale,
            "big_life",
            "server CPU time for the life of a delayed message of 32 KiB",
            payload,
            scale.size(3_000, 100),
            50,
        )
    ]


def _fresh_zadd_us(scale: Scale) -> float:
    """Return the calibration on a new server, on which a ZADD is cheaper because the heap is not fragmented."""
    with BenchServer() as server:
        return zadd_us(server, scale.size(ZADDS, ZADDS_QUICK))


def _life(scale: Scale, name: str, label: str, payload: bytes, lives: int, bar: float) -> Measurement:
    costs: list[Cost] = []

    def run_us() -> float:
        costs.append(cost_of_lives(shard, lives, payload))
        return costs[-1].total_us

    with keep_cores_busy(), BenchServer() as server, ManualTimeShard(server, history=HISTORY) as shard:
        ratios, zadds = ratios_to_zadd(server, scale, scale.runs(), run_us)
        del costs[0]
        fresh_us = _fresh_zadd_us(scale)
        clock_us = clock_cost_us(shard, scale.size(10_000, 200))
    phases = {part: round(median(cost.parts_us[part] for cost in costs), 3) for part in costs[0].parts_us}
    return Measurement(
        name,
        f"{label}, with {BATCH} messages in each call",
        "ZADD",
        ratios,
        bar,
        details={
            "lives": lives,
            "batch": BATCH,
            "payload_bytes": len(payload),
            "zadd_us": [round(us, 3) for us in zadds],
            "life_us": [round(cost.total_us, 3) for cost in costs],
            "phases_us": phases,
            "history_entries": HISTORY,
            "against_a_fresh_server": round(median(cost.total_us for cost in costs) / fresh_us, 2),
            "zadd": "on the same server before each run, the median of three rounds; cores kept awake in all runs",
            "production_clock_costs_more_us_per_call": round(clock_us, 3),
            "note": "the test clock (one HGET) instead of TIME",
        },
    )
