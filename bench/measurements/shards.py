"""What a life costs the server where a namespace has many shards."""

from contextlib import ExitStack

from bench.harness.bench_server import BenchServer
from bench.harness.busy_cores import keep_cores_busy
from bench.harness.manual_time import ManualTimeShard
from bench.harness.measurement import Measurement, Scale
from bench.measurements.message_life import BATCH, HISTORY, cost_of_lives

# How many, and how many stand for them in a quick run.
SHARDS = {1: 1, 4: 2, 64: 3}
# The same lives whatever they are spread over: as many timers wait, and as much memory is gone through.
LIVES = 128_000


def shards(scale: Scale) -> list[Measurement]:
    """Server CPU of as many delayed lives over 4 and 64 shards against 1, with as many messages to a shard's call."""
    dense: dict[int, list[float]] = {count: [] for count in SHARDS}
    # Batches of 100 over all shards, as one small producer makes them: each shard's call has few messages.
    sparse: dict[int, list[float]] = {count: [] for count in SHARDS}
    with keep_cores_busy(), ExitStack() as stack:
        namespaces = {}
        for count, few in SHARDS.items():
            server = stack.enter_context(BenchServer())
            namespaces[count] = stack.enter_context(
                ManualTimeShard(server, history=HISTORY, shards=scale.size(count, few))
            )
        # Taking turns, so that what the machine does meanwhile meets all of them; the first turn warms up.
        for turn in range(scale.runs(3) + scale.warmup_runs):
            for count, namespace in namespaces.items():
                batch = scale.size(BATCH, 10) * namespace.shards
                cost = cost_of_lives(namespace, scale.size(LIVES, 120), batch=batch)
                if turn >= scale.warmup_runs:
                    dense[count].append(cost.total_us)
                    sparse[count].append(cost_of_lives(namespace, scale.size(5_000, 100)).total_us)
    details = {
        "lives": scale.size(LIVES, 120),
        "messages_to_a_shards_call": BATCH,
        "life_us": {str(n): [round(us, 2) for us in samples] for n, samples in dense.items()},
        "life_us_with_100_messages_over_all_shards": {
            str(n): [round(us, 2) for us in samples] for n, samples in sparse.items()
        },
    }
    return [
        Measurement(
            f"life_{count}_shards",
            f"server CPU time for a life with {count} shards, relative to one shard, with {BATCH} messages a call",
            "×",
            # Each against its own turn: between turns the machine may change its pace.
            [us / one for us, one in zip(dense[count], dense[1], strict=True)],
            1.1,
            details=details,
        )
        for count in SHARDS
        if count > 1
    ]
