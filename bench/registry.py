"""The functions that measure, in the order in which they run, and their names for `python -m bench --only`.

Each function returns one row of the results table, or several related rows.
"""

from collections.abc import Callable

from bench.harness.measurement import Measurement, Scale
from bench.measurements.backlog import backlog
from bench.measurements.blocked_messages import blocked_messages
from bench.measurements.client_throughput import client_rates, delayed_lives
from bench.measurements.durability import durability
from bench.measurements.empty_dequeue import empty_dequeue
from bench.measurements.failover import failover
from bench.measurements.filters import exclusive_filtered_dequeue, filtered_dequeue, longest_call
from bench.measurements.large_requests import large_requests
from bench.measurements.lateness import lateness
from bench.measurements.message_life import big_life, life
from bench.measurements.relay import relay
from bench.measurements.server_memory import cancelled_memory, memory, pairs
from bench.measurements.service_fairness import service_fairness
from bench.measurements.service_throughput import service_processes, service_rates
from bench.measurements.shards import shards
from bench.measurements.takeover import takeover
from bench.measurements.timestone_mix import timestone_mix
from bench.measurements.timing_wheel import wheel
from bench.measurements.wakeup_latency import service_wakes
from bench.measurements.worker_overhead import worker_overhead
from bench.measurements.worker_shapes import worker_shapes

MEASUREMENTS: dict[str, Callable[[Scale], list[Measurement]]] = {
    "life": life,
    "big_life": big_life,
    "backlog": backlog,
    "memory": memory,
    "pairs": pairs,
    "cancelled": cancelled_memory,
    "shards": shards,
    "blocked": blocked_messages,
    "filtered": filtered_dequeue,
    "exclusive_filtered": exclusive_filtered_dequeue,
    "longest_call": longest_call,
    "empty": empty_dequeue,
    "client_rates": client_rates,
    "delayed_lives": delayed_lives,
    "service_rates": service_rates,
    "service_processes": service_processes,
    "large_requests": large_requests,
    "service_fairness": service_fairness,
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
