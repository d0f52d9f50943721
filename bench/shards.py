"""What a life costs the server where a namespace has many shards."""

from statistics import median

from bench.awake import cores_awake
from bench.figures import Figure, Scale
from bench.life import BATCH, HISTORY, cost_of_lives
from bench.server import BenchServer
from bench.turned import TurnedShard

# How many, and how many stand for them in a quick run.
SHARDS = {1: 1, 4: 2, 64: 3}
STEPS = 20


def shards(scale: Scale) -> list[Figure]:
    """Server CPU of a whole delayed life over 4 and 64 shards against 1, with as many messages to a shard's call."""
    lives: dict[int, list[float]] = {}
    # Batches of 100 over all shards, as one small producer makes them: each shard's call has few messages.
    sparse: dict[int, list[float]] = {}
    with cores_awake():
        for count, few_shards in SHARDS.items():
            there = scale.size(count, few_shards)
            with BenchServer() as server, TurnedShard(server, history=HISTORY, shards=there) as shard:
                batch = scale.size(BATCH, 10) * there
                most = scale.size(STEPS, 2) * batch
                cost_of_lives(shard, most, batch=batch)
                lives[count] = [cost_of_lives(shard, most, batch=batch).total_us for _ in range(scale.runs(3))]
                few = scale.size(5_000, 100)
                sparse[count] = [cost_of_lives(shard, few).total_us for _ in range(scale.runs(3))]
    one = median(lives[1])
    return [
        Figure(
            f"life_{count}_shards",
            f"server CPU of a whole life with {count} shards against 1, 100 messages to a shard's call",
            "×",
            [us / one for us in lives[count]],
            1.1,
            details={
                "batch_per_shard": BATCH,
                "life_us": {str(n): [round(us, 2) for us in found] for n, found in lives.items()},
                "life_us_with_batches_of_100_over_all_shards": {
                    str(n): [round(us, 2) for us in found] for n, found in sparse.items()
                },
            },
        )
        for count in SHARDS
        if count > 1
    ]
