"""The server CPU time of a life in a namespace with many shards."""

from contextlib import ExitStack

from bench.harness.bench_server import BenchServer
from bench.harness.busy_cores import keep_cores_busy
from bench.harness.manual_time import ManualTimeShard
from bench.harness.measurement import Measurement, Scale
from bench.measurements.message_life import BATCH, HISTORY, cost_of_lives

# The number of shards, and the number in a quick run.
SHARDS = {1: 1, 4: 2, 64: 3}
# The same number for any number of shards, so that the numbers of timers and the memory are equal.
LIVES = 128_000


def shards(scale: Scale) -> list[Measurement]:
    """Measure delayed lives on 4 and 64 shards relative to one shard."""
    # Each script call has about 100 messages.
    dense: dict[int, list[float]] = {count: [] for count in SHARDS}
    # Batches of 100 over all shards, like those of a small producer: each script call has few messages.
    sparse: dict[int, list[float]] = {count: [] for count in SHARDS}
    with keep_cores_busy(), ExitStack() as stack:
        namespaces = {}
        for count, few in SHARDS.items():
            server = stack.enter_context(BenchServer())
            namespaces[count] = stack.enter_context(
                ManualTimeShard(server, history=HISTORY, shards=scale.size(count, few))
            )
        # In turns, so that other work of the machine affects all servers. The first turn is the warm-up.
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
            f"server CPU time for a life with {count} shards, relative to one shard, with {BATCH} messages"
            " in each shard's call",
            "×",
            # Relative to the same turn, because the speed of the machine may change between turns.
            [us / one for us, one in zip(dense[count], dense[1], strict=True)],
            1.1,
            details=details,
        )
        for count in SHARDS
        if count > 1
    ]
