"""The functions that measure, in the order in which they run, their names for `python -m bench --only`, and their rows.

Each function returns one row of the results table, or several related rows. `measure` checks the names of the rows.
"""

from collections.abc import Callable

from bench.harness.measurement import Measurement, Scale
from bench.harness.source_files import source_files
from bench.measurements.backlog import backlog
from bench.measurements.blocked_messages import blocked_messages
from bench.measurements.celery_round_trip import celery_round_trip
from bench.measurements.client_throughput import client_rates, delayed_lives
from bench.measurements.durability import KINDS, durability
from bench.measurements.election_quiet import LEASES_S, election_calls, election_quiet
from bench.measurements.empty_dequeue import empty_dequeue
from bench.measurements.failover import failover
from bench.measurements.filters import exclusive_filtered_dequeue, filtered_dequeue, longest_call
from bench.measurements.large_requests import large_requests
from bench.measurements.lateness import lateness
from bench.measurements.lease_takeover import (
    SHARDS as LEASE_SHARDS,
    lease_handover,
    lease_takeover,
    lease_takeover_stepped,
)
from bench.measurements.many_queues import many_queues
from bench.measurements.message_life import big_life, life
from bench.measurements.queue_metrics import queue_metrics
from bench.measurements.queue_shares import CONNECTED as SHARES_CONNECTED, queue_shares
from bench.measurements.relay import relay
from bench.measurements.server_memory import cancelled_memory, memory, pairs
from bench.measurements.service_fairness import service_fairness
from bench.measurements.service_throughput import service_processes, service_rates
from bench.measurements.shards import shards
from bench.measurements.takeover import takeover
from bench.measurements.timestone_mix import timestone_mix
from bench.measurements.timing_wheel import wheel
from bench.measurements.wakeup_latency import service_wakes
from bench.measurements.worker_handover import lease_handover_last_resort
from bench.measurements.worker_overhead import worker_overhead
from bench.measurements.worker_pick_up import worker_pick_up
from bench.measurements.worker_shapes import OVER, SHAPES, worker_shapes

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
    "many_queues": many_queues,
    "service_fairness": service_fairness,
    "service_wakes": service_wakes,
    "worker_overhead": worker_overhead,
    "worker_shapes": worker_shapes,
    "worker_pick_up": worker_pick_up,
    "queue_shares": queue_shares,
    "celery_round_trip": celery_round_trip,
    "timestone_mix": timestone_mix,
    "durability": durability,
    "relay": relay,
    "lateness": lateness,
    "takeover": takeover,
    "lease_takeover": lease_takeover,
    "lease_takeover_stepped": lease_takeover_stepped,
    "lease_handover": lease_handover,
    "lease_handover_last_resort": lease_handover_last_resort,
    "election_quiet": election_quiet,
    "election_calls": election_calls,
    "queue_metrics": queue_metrics,
    "failover": failover,
    "wheel": wheel,
}

# The rows of the functions that return several rows, or a row with another name. A function without a line here returns
# one row, with the name of the function in `MEASUREMENTS`.
ROWS: dict[str, tuple[str, ...]] = {
    "cancelled": ("cancelled_retained", "cancelled_gone"),
    "shards": ("life_4_shards", "life_64_shards"),
    "client_rates": ("client_enqueue", "client_finish"),
    "service_rates": ("service_enqueue", "service_enqueue_share", "service_batch"),
    "large_requests": ("large_requests_memory", "large_requests_block"),
    "service_wakes": ("service_wake_p50", "service_wake_p99", "service_wake_asleep", "service_parked"),
    "worker_overhead": (
        "worker_overhead",
        "worker_cpu",
        "worker_supervisor_cpu",
        "worker_log",
        "worker_against_celery",
        "worker_against_dramatiq",
    ),
    "worker_shapes": tuple(f"worker_{shape}_{over}" for over in OVER for shape in SHAPES),
    "worker_pick_up": tuple(f"worker_pick_up_{part}_{over}" for over in OVER for part in ("p50", "p99")),
    "queue_shares": tuple(f"queue_shares_{over}" for over in SHARES_CONNECTED),
    "celery_round_trip": tuple(f"celery_round_trip_{part}_{over}" for over in OVER for part in ("p50", "p99")),
    "timestone_mix": (
        "timestone_share",
        "timestone_enqueue",
        "timestone_dequeue",
        "timestone_bursts",
        "timestone_bursts_dequeue",
        "timestone_direct_share",
    ),
    "durability": tuple(f"durability_{name}" for name in KINDS),
    "relay": ("relay", "relay_server", "relay_single", "relay_single_server"),
    "lateness": ("lateness_p50", "lateness_p99", "lateness_early"),
    "takeover": ("handover", "handover_time", "takeover", "takeover_first"),
    "lease_takeover": (
        *(f"lease_takeover_{shards}" for shards in LEASE_SHARDS),
        f"lease_takeover_{LEASE_SHARDS[-1]}_all",
    ),
    "lease_takeover_stepped": tuple(f"lease_takeover_{shards}_stepped" for shards in LEASE_SHARDS),
    "lease_handover": ("lease_handover", "lease_handover_time"),
    "lease_handover_last_resort": ("lease_handover_last_resort", "lease_handover_last_resort_service"),
    "election_quiet": (
        "election_wake_ups",
        "election_switches",
        "election_switches_of_process",
        "election_wake_ups_standby",
        "election_switches_of_standby",
        "election_connections_standby",
    ),
    "election_calls": (*(f"election_calls_{lease_s}s" for lease_s in LEASES_S), "election_calls_last_resort"),
    "wheel": ("timing_wheel", "timing_wheel_same_rate"),
}


def row_sources() -> dict[str, frozenset[str]]:
    """Return the names of all rows, each with the files that measure the row."""
    return {
        row: source_files(function.__module__)
        for name, function in MEASUREMENTS.items()
        for row in ROWS.get(name, (name,))
    }


def measure(name: str, scale: Scale) -> list[Measurement]:
    """Run a function that measures, and return its rows.

    Raises RuntimeError if the function returns other rows than `ROWS` lists. A quick run may have fewer.
    """
    rows = ROWS.get(name, (name,))
    measurements = MEASUREMENTS[name](scale)
    returned = {measurement.name for measurement in measurements}
    if not returned <= set(rows) if scale.quick else returned != set(rows):
        raise RuntimeError(
            f"{name} returned the rows {', '.join(sorted(returned))}, and ROWS of bench/registry.py has"
            f" {', '.join(rows)}: correct ROWS"
        )
    return measurements
