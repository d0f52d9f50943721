"""Every row that can be measured, by the name that `--only` takes, in the order in which they run."""

from collections.abc import Callable

from bench.backlog import backlog
from bench.blocked import blocked
from bench.durability import durability
from bench.empty import empty
from bench.failover import failover
from bench.figures import Figure, Scale
from bench.filters import exclusive_filtered, filtered, longest_call
from bench.lateness import lateness
from bench.life import big_life, life
from bench.memory import cancelled, memory, pairs
from bench.rates import client_rates, delayed_lives
from bench.relay import relay
from bench.service import service_processes, service_rates
from bench.shards import shards
from bench.takeover import takeover
from bench.timestone import timestone_mix
from bench.wakes import service_wakes
from bench.wheel import wheel
from bench.worker_overhead import worker_overhead
from bench.worker_shapes import worker_shapes

ROWS: dict[str, Callable[[Scale], list[Figure]]] = {
    "life": life,
    "big_life": big_life,
    "backlog": backlog,
    "memory": memory,
    "pairs": pairs,
    "cancelled": cancelled,
    "shards": shards,
    "blocked": blocked,
    "filtered": filtered,
    "exclusive_filtered": exclusive_filtered,
    "longest_call": longest_call,
    "empty": empty,
    "client_rates": client_rates,
    "delayed_lives": delayed_lives,
    "service_rates": service_rates,
    "service_processes": service_processes,
    "service_wakes": service_wakes,
    "worker_overhead": worker_overhead,
    "worker_shapes": worker_shapes,
    "timestone_mix": timestone_mix,
    "durability": durability,
    "relay": relay,
    "lateness": lateness,
    "takeover": takeover,
    "failover": failover,
    "wheel": wheel,
}
